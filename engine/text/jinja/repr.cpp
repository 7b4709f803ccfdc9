#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/value.hpp"
#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
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

/// Python's repr, written into an arena.
class Writer {
public:
    explicit Writer(Arena& arena) : out_(arena) {}

    std::string_view written() const { return {out_.begin(), out_.size()}; }
    void put(std::string_view text) { out_.append(text); }

    void put_quoted(std::string_view text) {
        const bool has_single = text.find('\'') != std::string_view::npos;
        const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
        const auto is_plain = [&](char c) { return c >= 0x20 && c < 0x7F && c != quote && c != '\\'; };
        out_.push_back(quote);
        for (std::size_t at = 0; at < text.size();) {
            std::size_t end = at;
            while (end < text.size() && is_plain(text[end])) ++end;
            put(text.substr(at, end - at));
            at = end;
            if (at == text.size()) break;
            const CodePoint point = code_point_at(text, at);
            put_unusual(point.value, text.substr(at, point.bytes));
            at += point.bytes;
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
    /// What is not printable ASCII, or needs a backslash.
    void put_unusual(char32_t c, std::string_view bytes) {
        if (c == '\\' || c == '\'' || c == '"') {
            put("\\");
            put(bytes);
        } else if (c == '\n') {
            put("\\n");
        } else if (c == '\r') {
            put("\\r");
        } else if (c == '\t') {
            put("\\t");
        } else if (is_printable(c)) {
            put(bytes);
        } else {
            std::array<char, 16> text{};
            const char* form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
            std::snprintf(text.data(), text.size(), form, static_cast<unsigned>(c));
            put(text.data());
        }
    }

    ArenaVector<char> out_;
};

std::string quoted(std::string_view text) {
    Arena arena;
    Writer writer(arena);
    writer.put_quoted(text);
    return std::string(writer.written());
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
    if (value.is_list_or_tuple() || value.is_dict() || value.is_sequence()) return to_repr(arena, value);
    Writer writer(arena);
    writer.put_plain(value);
    // What an object shows may hold anything, so none of it forms control tokens.
    return Text(writer.written(), value.is_object());
}

Text to_repr(Arena& arena, const Value& value) {
    Writer writer(arena);
    writer.put_repr(value);
    return Text(writer.written(), has_request_text(value));
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
