#include "engine/route/route_text.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace attune {
namespace {

/// Chinese characters, kana, Hangul syllables, emoji, dashes and quotes that NFKC and case folding leave alone,
/// whatever stands beside them unless it is a mark or a jamo.
bool is_settled(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) ||
           (c >= 0xAC00 && c <= 0xD7A3) || c == 0x3001 || c == 0x3002 || c == 0x2014 || c == 0x2018 || c == 0x2019 ||
           c == 0x201C || c == 0x201D || (c >= 0x1F300 && c <= 0x1FAFF);
}

/// A heart is a heart with or without its selector.
bool is_invisible(char32_t c) {
    return c == 0x00AD || c == 0x034F || (c >= 0x200B && c <= 0x200F) || (c >= 0x2060 && c <= 0x2064) ||
           (c >= 0xFE00 && c <= 0xFE0F) || c == 0xFEFF || (c >= 0xE0100 && c <= 0xE01EF);
}

/// What the alphabets of Europe and the Near East, punctuation and symbols become: a text of theirs is its characters'
/// own forms in a row, as long as none of them is a mark, which may join what stands before it.
class LoneForms {
public:
    struct Form {
        std::uint8_t bytes = 0;  ///< 0: no form of its own
        std::array<char, 11> text{};
    };

    explicit LoneForms(bool fold) : forms_(kFirst.size() + kSecond.size()) {
        for (const Range range : {kFirst, kSecond})
            for (char32_t c = range.begin; c < range.end; ++c)
                if (!is_mark(c)) set(c, fold);
    }

    /// Nothing where neighbours have a say.
    const Form* find(char32_t c) const {
        if (!kFirst.holds(c) && !kSecond.holds(c)) return nullptr;
        const Form& form = forms_[index(c)];
        return form.bytes == 0 ? nullptr : &form;
    }

private:
    struct Range {
        char32_t begin, end;
        constexpr bool holds(char32_t c) const { return c >= begin && c < end; }
        constexpr std::size_t size() const { return end - begin; }
    };
    // Within these whatever composes with a character before it is a mark; in Indic scripts and among jamo it is not
    // so.
    static constexpr Range kFirst{0x80, 0x700}, kSecond{0x1E00, 0x2C00};

    static std::size_t index(char32_t c) {
        return kFirst.holds(c) ? c - kFirst.begin : kFirst.size() + (c - kSecond.begin);
    }
    void set(char32_t c, bool fold) {
        std::string one;
        append_utf8(one, c);
        one = fold ? fold_for_matching(one) : normalize(one, NormalForm::nfkc);
        Form& form = forms_[index(c)];
        if (one.empty() || one.size() > form.text.size() || is_mark(code_point_at(one, 0).value)) return;
        form.bytes = static_cast<std::uint8_t>(one.size());
        std::copy(one.begin(), one.end(), form.text.begin());
    }

    std::vector<Form> forms_;
};

/// Made when the first text needs it, a few milliseconds.
const LoneForms& lone_forms(bool fold) {
    static const LoneForms folded(true);
    if (fold) return folded;
    static const LoneForms normal(false);
    return normal;
}

/// NFKC, and case folding where asked, of a text whose characters do not look at their neighbours. Most texts are so,
/// and cost a twentieth of the general way. False: this one is not, or is no UTF-8, and `out` means nothing.
bool settle(std::string_view text, bool fold, std::string& out) {
    out.resize(text.size());
    std::size_t to = 0;
    const auto put = [&](unsigned char c) {
        out[to++] = static_cast<char>(fold && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    };
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
        if (byte(0) < 0x80) {
            put(byte(0));
            ++at;
            continue;
        }
        const CodePoint c = code_point_at(text, at);
        if (!is_valid_utf8(text.substr(at, c.bytes))) return false;
        if (c.value >= 0xFF01 && c.value <= 0xFF5E) {
            put(static_cast<unsigned char>(c.value - 0xFF01 + 0x21));
        } else if (c.value == 0x3000) {
            put(' ');
        } else if (is_settled(c.value)) {
            std::copy_n(text.data() + at, c.bytes, out.data() + to);
            to += c.bytes;
        } else if (!is_invisible(c.value)) {
            const LoneForms::Form* form = lone_forms(fold).find(c.value);
            if (form == nullptr) return false;
            // Behind `to` there is room for what is left of the text, and no more.
            if (form->bytes > c.bytes) out.resize(out.size() + form->bytes - c.bytes);
            std::copy_n(form->text.data(), form->bytes, out.data() + to);
            to += form->bytes;
        }
        at += c.bytes;
    }
    out.resize(to);
    return true;
}

/// `text` is valid UTF-8.
std::string visible(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint c = code_point_at(text, at);
        if (!is_invisible(c.value)) out.append(text.substr(at, c.bytes));
        at += c.bytes;
    }
    return out;
}

std::string valid_utf8(std::string_view text) {
    if (is_valid_utf8(text)) return std::string(text);
    std::string repaired;
    LossyUtf8 lossy;
    lossy.push(text, repaired);
    lossy.flush(repaired);
    return repaired;
}

}  // namespace

std::string comparable(std::string_view text) {
    std::string settled;
    return settle(text, /*fold=*/true, settled) ? settled : fold_for_matching(visible(valid_utf8(text)));
}

std::string searchable(std::string_view text) {
    std::string settled;
    return settle(text, /*fold=*/false, settled) ? settled : normalize(visible(valid_utf8(text)), NormalForm::nfkc);
}

std::string_view beginning_of(std::string_view text, std::size_t limit) {
    if (text.size() <= limit) return text;
    text = text.substr(0, limit);
    return text.substr(0, complete_utf8_bytes(text));
}

bool is_word_by_itself(char32_t c) {
    if (c >= 0x4E00 && c <= 0x9FFF) return true;  // most of them
    return c >= 0x80 && is_letter(c) && !is_spaced_script_letter(c);
}

std::vector<std::size_t> word_ends(std::string_view text, std::size_t most) {
    std::vector<std::size_t> ends;
    bool in_word = false;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint c = code_point_at(text, at);
        const bool alone = is_word_by_itself(c.value);
        const bool is_part = alone || is_word_character(c.value);
        if (in_word && (alone || !is_part)) {
            ends.push_back(at);
            in_word = false;
        }
        if (ends.size() >= most) return ends;
        at += c.bytes;
        // A mark after a character that is a word belongs to it.
        if (alone) {
            while (at < text.size() && is_mark(code_point_at(text, at).value)) at += code_point_at(text, at).bytes;
            ends.push_back(at);
        } else {
            in_word = is_part;
        }
        if (ends.size() >= most) return ends;
    }
    if (in_word) ends.push_back(text.size());
    return ends;
}

}  // namespace attune
