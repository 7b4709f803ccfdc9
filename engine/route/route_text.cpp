#include "engine/route/route_text.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>

namespace attune {
namespace {

/// Chinese characters, kana, Hangul syllables, dashes and quotes that NFKC and case folding leave alone, whatever
/// stands beside them that is ASCII or one of them.
bool is_settled(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) ||
           (c >= 0xAC00 && c <= 0xD7A3) || c == 0x3001 || c == 0x3002 || c == 0x2014 || c == 0x2018 || c == 0x2019 ||
           c == 0x201C || c == 0x201D;
}

/// NFKC, and case folding where asked, of a text in which only ASCII letters and their full-width twins can change.
/// Most texts are so, and cost a twentieth of the general way. False: this one is not, and `out` means nothing.
bool settle(std::string_view text, bool fold, std::string& out) {
    out.resize(text.size());
    char* to = out.data();
    const auto put = [&](unsigned char c) {
        *to++ = static_cast<char>(fold && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    };
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
        if (byte(0) < 0x80) {
            put(byte(0));
            ++at;
            continue;
        }
        if ((byte(0) & 0xF0) != 0xE0 || at + 2 >= text.size() || (byte(1) & 0xC0) != 0x80 || (byte(2) & 0xC0) != 0x80)
            return false;
        const char32_t c = static_cast<char32_t>((byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
        if (c >= 0xFF01 && c <= 0xFF5E) {
            put(static_cast<unsigned char>(c - 0xFF01 + 0x21));
        } else if (c == 0x3000) {
            put(' ');
        } else if (is_settled(c)) {
            to = std::copy_n(text.data() + at, 3, to);
        } else {
            return false;
        }
        at += 3;
    }
    out.resize(static_cast<std::size_t>(to - out.data()));
    return true;
}

/// A heart is a heart with or without its selector.
bool is_invisible(char32_t c) {
    return c == 0x00AD || c == 0x034F || (c >= 0x200B && c <= 0x200F) || (c >= 0x2060 && c <= 0x2064) ||
           (c >= 0xFE00 && c <= 0xFE0F) || c == 0xFEFF || (c >= 0xE0100 && c <= 0xE01EF);
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
