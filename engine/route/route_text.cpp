#include "engine/route/route_text.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

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

constexpr int kNukta = 7;

/// The combining class of a Devanagari or Thai mark that joins nothing before it (but a nukta three letters), which may
/// only change places with marks of a higher class; 0 for what is no mark. Nothing for all other marks.
std::optional<int> quiet_class(char32_t c) {
    if (!is_mark(c)) return 0;
    const bool devanagari = c >= 0x0900 && c < 0x0980;
    if (!devanagari && (c < 0x0E00 || c >= 0x0E80)) return std::nullopt;
    if (c == 0x094D || c == 0x0E3A) return 9;  // virama, phinthu
    if (c == 0x0E38 || c == 0x0E39) return 103;
    if (c >= 0x0E48 && c <= 0x0E4B) return 107;  // tones
    if (c == 0x093C) return kNukta;
    if (c >= 0x0951 && c <= 0x0954) return std::nullopt;  // accents
    return 0;
}

/// What the alphabets of Europe and the Near East, Devanagari, Thai, punctuation and symbols become: a text of theirs
/// is its characters' own forms in a row, as long as none of them is a mark that may join what stands before it.
class LoneForms {
public:
    struct Form {
        std::uint8_t bytes = 0;                        ///< 0: no form of its own
        std::uint8_t first_class = 0, last_class = 0;  ///< combining classes of its ends
        std::array<char, 10> text{};
    };

    explicit LoneForms(bool fold) {
        for (std::size_t i = 0; i < kRanges.size(); ++i)
            for (char32_t c = kRanges[i].begin; c < kRanges[i].end; ++c) forms_[i].push_back(form_of(c, fold));
    }

    /// Nothing where neighbours have a say.
    const Form* find(char32_t c) const {
        for (std::size_t i = 0; i < kRanges.size(); ++i)
            if (c >= kRanges[i].begin && c < kRanges[i].end) {
                const Form& form = forms_[i][c - kRanges[i].begin];
                return form.bytes == 0 ? nullptr : &form;
            }
        return nullptr;
    }

private:
    struct Range {
        char32_t begin, end;
    };
    // Within these whatever composes with a character before it is a mark; among jamo and in other Indic scripts not
    // so.
    static constexpr std::array<Range, 4> kRanges{
        {{0x80, 0x700}, {0x1E00, 0x2C00}, {0x0900, 0x0980}, {0x0E00, 0x0E80}}};

    static constexpr std::uint8_t kAnyClass = 255;  ///< no mark is known to stay behind this one

    static bool may_join(char32_t c) { return !quiet_class(c); }

    static Form form_of(char32_t c, bool fold) {
        if (may_join(c)) return {};
        std::string one;
        append_utf8(one, c);
        one = fold ? fold_for_matching(one) : normalize(one, NormalForm::nfkc);
        Form form;
        if (one.empty() || one.size() > form.text.size() || may_join(code_point_at(one, 0).value)) return {};
        const char32_t last = code_point_before(one, one.size()).value;
        form.bytes = static_cast<std::uint8_t>(one.size());
        form.first_class = static_cast<std::uint8_t>(*quiet_class(code_point_at(one, 0).value));
        form.last_class = may_join(last) ? kAnyClass : static_cast<std::uint8_t>(*quiet_class(last));
        // The three letters that a nukta joins: as if a mark stood there that it had to pass.
        if (c == 0x0928 || c == 0x0930 || c == 0x0933) form.last_class = kNukta + 1;
        std::copy(one.begin(), one.end(), form.text.begin());
        return form;
    }

    std::array<std::vector<Form>, kRanges.size()> forms_;
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
    int mark_class = 0;  // of the character before
    const auto put = [&](unsigned char c) {
        out[to++] = static_cast<char>(fold && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    };
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
        if (byte(0) < 0x80) {
            put(byte(0));
            mark_class = 0;
            ++at;
            continue;
        }
        const CodePoint c = code_point_at(text, at);
        if (!is_valid_utf8(text.substr(at, c.bytes))) return false;
        const int before = std::exchange(mark_class, 0);
        if (c.value >= 0xFF01 && c.value <= 0xFF5E) {
            put(static_cast<unsigned char>(c.value - 0xFF01 + 0x21));
        } else if (c.value == 0x3000) {
            put(' ');
        } else if (is_settled(c.value)) {
            std::copy_n(text.data() + at, c.bytes, out.data() + to);
            to += c.bytes;
        } else if (is_invisible(c.value)) {
            mark_class = before;
        } else {
            const LoneForms::Form* form = lone_forms(fold).find(c.value);
            if (form == nullptr) return false;
            if (form->first_class != 0 && form->first_class < before) return false;
            mark_class = form->last_class;
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
