#include "engine/text/unicode.hpp"

#include "engine/text/unicode_tables.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace attune {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// One step over bytes that may be anything. `bytes`: length of the character or of the maximal ill-formed part;
/// `unfinished`: well formed so far, but the text ends inside it.
struct Scan {
    std::size_t bytes = 1;
    bool ok = false;
    bool unfinished = false;
};

Scan scan(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {1, true, false};
    std::size_t need = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        need = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        need = 3;
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;  // surrogates are no characters
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        need = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    } else {
        return {1, false, false};
    }
    for (std::size_t i = 1; i < need; ++i) {
        if (i == text.size()) return {i, false, true};
        if (byte(i) < low || byte(i) > high) return {i, false, false};
        low = 0x80;
        high = 0xBF;
    }
    return {need, true, false};
}

struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
};

std::string map_text(std::string_view text, int options) {
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &mapped, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, FreeDeleter> owner(mapped);
    if (bytes < 0) return std::string(text);
    return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(bytes));
}

bool is_ascii(std::string_view text) {
    unsigned char all = 0;  // without a branch in the loop, so that it is done many bytes at a time
    for (const char c : text) all |= static_cast<unsigned char>(c);
    return all < 0x80;
}

utf8proc_category_t category(char32_t code_point) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_newer_word_character(char32_t c) {
    for (const NewerCategory& newer : newer_categories()) {
        if (c < newer.first || c > newer.last) continue;
        const std::string_view name = newer.name;
        return name[0] == 'L' || name[0] == 'M' || name == "Nd" || name == "Pc";
    }
    return false;
}

// Scripts written without spaces between words, and the ideographs and kana they share.
constexpr std::array kUnspaced = {
    CodeRange{0x0E00, 0x0EFF},    // Thai, Lao
    CodeRange{0x0F00, 0x0FFF},    // Tibetan
    CodeRange{0x1000, 0x109F},    // Myanmar
    CodeRange{0x1780, 0x17FF},    // Khmer
    CodeRange{0x1950, 0x19FF},    // Tai Le, New Tai Lue, Khmer symbols
    CodeRange{0x1A20, 0x1AAF},    // Tai Tham
    CodeRange{0x2E80, 0x2FDF},    // radicals
    CodeRange{0x3005, 0x3007},    // ideographic iteration mark and zero
    CodeRange{0x3021, 0x312F},    // numerals, kana, bopomofo
    CodeRange{0x31A0, 0x9FFF},    // bopomofo, kana extensions, ideographs
    CodeRange{0xA000, 0xA4CF},    // Yi
    CodeRange{0xA980, 0xA9DF},    // Javanese
    CodeRange{0xA9E0, 0xA9FF},    // Myanmar extended
    CodeRange{0xAA60, 0xAADF},    // Myanmar extended, Tai Viet
    CodeRange{0xF900, 0xFAFF},    // compatibility ideographs
    CodeRange{0xFF66, 0xFF9F},    // half-width kana
    CodeRange{0x1AFF0, 0x1B16F},  // kana supplements
    CodeRange{0x20000, 0x3FFFF},  // ideographs of the supplementary planes
};

}  // namespace

bool contains(const std::vector<CodeRange>& table, char32_t code_point) {
    const auto range =
        std::partition_point(table.begin(), table.end(), [&](const CodeRange& r) { return r.last < code_point; });
    return range != table.end() && range->first <= code_point;
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) {
        return at + i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[at + i])) : 0;
    };
    const char32_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
    std::size_t at = end - 1;
    while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return code_point_at(text, at);
}

void append_utf8(std::string& out, char32_t code_point) {
    const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | code_point >> 6);
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | code_point >> 12);
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | code_point >> 18);
        put(0x80 | (code_point >> 12 & 0x3F));
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

std::size_t count_code_points(std::string_view text) {
    std::size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return count;
}

std::size_t complete_utf8_bytes(std::string_view text) {
    const std::size_t from = text.size() > 3 ? text.size() - 3 : 0;
    for (std::size_t at = from; at < text.size(); ++at) {
        if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
        if (scan(text.substr(at)).unfinished) return at;
    }
    return text.size();
}

void LossyUtf8::push(std::string_view bytes, std::string& out) {
    std::string joined;
    if (!held_.empty()) {
        joined = held_;
        joined.append(bytes);
        bytes = joined;
        held_.clear();
    }
    std::size_t sent = 0;
    std::size_t at = 0;
    while (at < bytes.size()) {
        if (static_cast<unsigned char>(bytes[at]) < 0x80) {
            ++at;
            continue;
        }
        const std::string_view rest = bytes.substr(at);
        const Scan step = scan(rest);
        if (step.ok) {
            at += step.bytes;
            continue;
        }
        out.append(bytes.substr(sent, at - sent));
        // A surrogate's first two bytes are already wrong, but Python's decoder waits for the third; so do we.
        const bool surrogate = rest.size() == 2 && rest[0] == '\xED' && static_cast<unsigned char>(rest[1]) >= 0xA0 &&
                               static_cast<unsigned char>(rest[1]) <= 0xBF;
        if (step.unfinished || surrogate) {
            held_ = std::string(rest);
            return;
        }
        out.append(kReplacement);
        at += step.bytes;
        sent = at;
    }
    out.append(bytes.substr(sent));
}

void LossyUtf8::flush(std::string& out) {
    for (std::string_view rest = held_; !rest.empty(); rest.remove_prefix(scan(rest).bytes)) out.append(kReplacement);
    held_.clear();
}

std::string normalize(std::string_view text, NormalForm form) {
    if (is_ascii(text)) return std::string(text);
    switch (form) {
        case NormalForm::nfc:
            return map_text(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        case NormalForm::nfd:
            return map_text(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
        case NormalForm::nfkc:
            return map_text(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
        case NormalForm::nfkd:
            return map_text(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    }
    return std::string(text);
}

std::string fold_for_matching(std::string_view text) {
    const std::string compatible = normalize(text, NormalForm::nfkc);
    const std::string folded =
        map_text(compatible, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD);
    return normalize(folded, NormalForm::nfkc);
}

bool is_white_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    const auto kind = category(c);
    return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO ||
           contains(newer_numbers(), c);
}

bool is_letter(char32_t c) {
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(char32_t c) {
    if (c < 0x80) return false;
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_word_character(char32_t c) {
    if (c < 0x80) return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
    if (c == 0x200C || c == 0x200D) return true;
    const auto kind = category(c);
    // Circled letters and letter-like numerals are alphabetic though no letters.
    const bool other_alphabetic = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                  (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ME) || kind == UTF8PROC_CATEGORY_ND ||
           kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || other_alphabetic ||
           is_newer_word_character(c);
}

bool is_spaced_script_letter(char32_t c) {
    if (c < 0x80) return is_letter(c) || is_numeric(c);
    for (const CodeRange& range : kUnspaced) {
        if (c >= range.first && c <= range.last) return false;
    }
    return is_letter(c) || is_mark(c) || category(c) == UTF8PROC_CATEGORY_ND;
}

}  // namespace attune
