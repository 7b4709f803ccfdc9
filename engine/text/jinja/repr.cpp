#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/value.hpp"
#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace attune::jinja {
namespace {

constexpr int kMaxDepth = 200;

bool is_printable(char32_t c) {
    if (c < 0x7F) return c >= 0x20;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS:
            return false;
        default:
            return true;
    }
}

/// Printable ASCII that needs no backslash between quotes of this kind.
bool is_plain(char c, char quote) {
    return c >= 0x20 && c != 0x7F && c != quote && c != '\\';  // what is not ASCII is below 0
}

/// The same of eight characters at once.
class PlainWord {
public:
    explicit PlainWord(char quote) : quotes_(static_cast<unsigned char>(quote) * kOnes) {}
    bool operator()(std::uint64_t word) const {
        const std::uint64_t special = below_one(word ^ quotes_) | below_one(word ^ ('\\' * kOnes)) |
                                      below_one(word ^ (0x7F * kOnes)) | (word - 0x20 * kOnes) | word;
        return (special & (0x80 * kOnes)) == 0;
    }

private:
    static constexpr std::uint64_t kOnes = 0x0101010101010101;
    /// High bits where a byte is 0; those above such a byte may be wrong.
    static std::uint64_t below_one(std::uint64_t bytes) { return (bytes - kOnes) & ~bytes; }

    std::uint64_t quotes_;
};

/// Python's repr, appended to `out`.
class Writer {
public:
    explicit Writer(ArenaVector<char>& out) : out_(out) {}

    void put(std::string_view text) { out_.append(text); }

    void put_quoted(std::string_view text) {
        // Most texts are plain: they are looked at and copied in one go.
        out_.push_back('\'');
        std::size_t at = put_plain_part(text, '\'');
        if (at == text.size()) return out_.push_back('\'');
        const bool has_single = text.find('\'', at) != std::string_view::npos;
        const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
        if (quote == '"') out_[out_.size() - at - 1] = quote;
        while (at < text.size()) {
            const CodePoint point = code_point_at(text, at);
            const std::string_view bytes = text.substr(at, point.bytes);
            if (point.value == '\'' && quote == '"') {
                out_.push_back('\'');
            } else if (point.value >= 0x80 && is_printable(point.value)) {
                put(bytes);
            } else {
                put_escaped(point.value);
            }
            at += bytes.size();
            at += put_plain_part(text.substr(at), quote);
        }
        out_.push_back(quote);
    }

    void put_repr(const Value& value, int depth = 0) {
        if (depth > kMaxDepth) throw Failure("RecursionError", "a value is nested too deeply");
        if (value.is_text()) {
            put_quoted(value.bytes());
        } else if (value.is_list_or_tuple()) {
            const List& list = value.list();
            put(list.tuple ? "(" : "[");
            put_items(list.items, depth);
            if (list.tuple && list.items.size() == 1) put(",");
            put(list.tuple ? ")" : "]");
        } else if (value.is_dict()) {
            put_dict(value.dict(), depth);
        } else if (value.is_undefined()) {
            put("Undefined");
        } else if (value.is_sequence()) {
            put_sequence(value.sequence(), depth);
        } else {
            put_plain(value);
        }
    }

    /// str() of what is neither text nor a container.
    void put_plain(const Value& value) {
        if (value.is_none()) return put("None");
        if (value.is_bool()) return put(value.boolean() ? "True" : "False");
        if (value.is_int()) return put(integer_text(value.integer()));
        if (value.is_float()) return put(repr_of_float(value.floating()));
        if (!value.is_range()) return put(value.object().repr());
        const Range& range = value.range();
        put("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
        if (range.step != 1) put(", " + std::to_string(range.step));
        put(")");
    }

private:
    void put_items(std::span<const Value> items, int depth) {
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) put(", ");
            put_repr(items[i], depth + 1);
        }
    }
    void put_dict(const Dict& dict, int depth) {
        put("{");
        bool first = true;
        for (const auto& [key, item] : dict.entries()) {
            if (!first) put(", ");
            first = false;
            put_repr(key, depth + 1);
            put(": ");
            put_repr(item, depth + 1);
        }
        put("}");
    }
    void put_sequence(const Sequence& sequence, int depth) {
        if (sequence.used_up_by_reading) {
            put("<");
            put(sequence.type);
            return put(" object>");
        }
        put(sequence.type);
        put("([");
        put_items(sequence.items, depth);
        put("])");
    }
    /// Appends the text up to what is not printable ASCII, needs a backslash or is the quote; says how much that was.
    std::size_t put_plain_part(std::string_view text, char quote) {
        constexpr std::size_t kWord = sizeof(std::uint64_t);
        constexpr std::size_t kHalf = sizeof(std::uint32_t);
        const PlainWord is_plain_word(quote);
        char* const to = out_.room(text.size());
        // Eight characters, in two halves that may overlap.
        const auto copy_word = [&](std::size_t first, std::size_t second) {
            std::uint32_t halves[2];
            std::memcpy(&halves[0], text.data() + first, kHalf);
            std::memcpy(&halves[1], text.data() + second, kHalf);
            std::uint64_t word = 0;
            std::memcpy(&word, halves, kWord);
            if (!is_plain_word(word)) return false;
            std::memcpy(to + first, &halves[0], kHalf);
            std::memcpy(to + second, &halves[1], kHalf);
            return true;
        };
        std::size_t at = 0;
        while (text.size() - at >= kWord && copy_word(at, at + kHalf)) at += kWord;
        const std::size_t left = text.size() - at;
        if (left >= kHalf && left < kWord && copy_word(at, text.size() - kHalf)) at = text.size();
        for (; at < text.size() && is_plain(text[at], quote); ++at) to[at] = text[at];
        out_.extend(at);
        return at;
    }
    /// What is not printable, or needs a backslash.
    void put_escaped(char32_t c) {
        constexpr std::string_view kCharacters = "\\'\"\n\r\t";
        constexpr std::string_view kLetters = "\\'\"nrt";
        const std::size_t found = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
        out_.push_back('\\');
        if (found != std::string_view::npos) {
            out_.push_back(kLetters[found]);
        } else if (c < 0x100) {
            put_hex('x', c, 2);
        } else if (c < 0x10000) {
            put_hex('u', c, 4);
        } else {
            put_hex('U', c, 8);
        }
    }
    void put_hex(char letter, char32_t c, int digits) {
        out_.push_back(letter);
        while (digits-- > 0) out_.push_back("0123456789abcdef"[c >> (4 * digits) & 0xF]);
    }

    ArenaVector<char>& out_;
};

bool is_container(const Value& value) { return value.is_list_or_tuple() || value.is_dict() || value.is_sequence(); }

std::string quoted(std::string_view text) {
    Arena arena;
    ArenaVector<char> out(arena);
    Writer(out).put_quoted(text);
    return {out.begin(), out.size()};
}

}  // namespace

std::string Undefined::message() const {
    if (!hint.empty()) return std::string(hint);
    if (owner_type.empty()) return quoted(name) + " is undefined";
    const std::string owner = owner_type == "NoneType" ? "None" : std::string(owner_type) + " object";
    if (is_element) return owner + " has no element " + std::string(name);
    return quoted(owner) + " has no attribute " + quoted(name);
}

Text to_text(Arena& arena, const Value& value) {
    if (value.is_text()) return value.text();
    if (value.is_undefined()) return Text();
    if (value.is_none()) return Text("None");
    if (value.is_bool()) return Text(value.boolean() ? "True" : "False");
    TextBuilder builder(arena);
    append_text(builder, value);
    return builder.take();
}

void append_text(TextBuilder& out, const Value& value) {
    if (is_container(value)) {
        out.write(has_request_text(value), [&](ArenaVector<char>& bytes) { Writer(bytes).put_repr(value); });
    } else if (value.is_text()) {
        out.append(value.text());
    } else if (!value.is_undefined()) {
        // What an object shows may hold anything, so none of it forms control tokens.
        out.write(value.is_object(), [&](ArenaVector<char>& bytes) { Writer(bytes).put_plain(value); });
    }
}

Text to_repr(Arena& arena, const Value& value) {
    TextBuilder builder(arena);
    builder.write(has_request_text(value), [&](ArenaVector<char>& bytes) { Writer(bytes).put_repr(value); });
    return builder.take();
}

std::string repr_of(const Value& value) {
    Arena arena;
    return std::string(to_repr(arena, value).bytes());
}

std::string integer_text(Integer value) {
    std::array<char, 48> digits;
    char* at = digits.data() + digits.size();
    const bool negative = value < 0;
    // Division of 128 bits is slow, and numbers are nearly always small.
    while (value < std::numeric_limits<std::int64_t>::min() || value > std::numeric_limits<std::int64_t>::max()) {
        const int digit = static_cast<int>(value % 10);
        *--at = static_cast<char>('0' + (digit < 0 ? -digit : digit));
        value /= 10;
    }
    auto rest = static_cast<std::int64_t>(value);
    do {
        const auto digit = static_cast<int>(rest % 10);
        *--at = static_cast<char>('0' + (digit < 0 ? -digit : digit));
        rest /= 10;
    } while (rest != 0);
    if (negative) *--at = '-';
    return {at, digits.data() + digits.size()};
}

std::string repr_of_float(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    const double size = std::fabs(value);
    std::array<char, 64> buffer;
    // Shortest digits that read back as the same number; Python writes an exponent outside of [1e-4, 1e16).
    const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
    const auto style = plain ? std::chars_format::fixed : std::chars_format::scientific;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, style);
    std::string text(buffer.data(), end.ptr);
    if (plain && text.find('.') == std::string::npos) text += ".0";
    return text;
}

}  // namespace attune::jinja
