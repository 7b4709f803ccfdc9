#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace attune::jinja {
namespace {

/// json.dumps of one value.
class Writer {
public:
    Writer(Context& context, const JsonStyle& style) : context_(context), style_(style), out_(context.arena) {}

    Text write(const Value& value) {
        put(value, 0);
        context_.charge_bytes(out_.size());
        return Text({out_.begin(), out_.size()}, has_request_text(value));
    }

private:
    void put(const Value& value, int depth) {
        const Context::Nesting nesting(context_);
        if (value.is_text()) {
            put_text(value.bytes());
        } else if (value.is_none()) {
            raw("null");
        } else if (value.is_bool()) {
            raw(value.boolean() ? "true" : "false");
        } else if (value.is_int()) {
            raw(integer_text(value.integer()));
        } else if (value.is_float()) {
            raw(float_text(value.floating()));
        } else if (value.is_list_or_tuple()) {
            const auto items = value.list().items;
            put_all('[', ']', items.size(), depth, [&](std::size_t i) { put(items[i], depth + 1); });
        } else if (value.is_dict()) {
            put_dict(value.dict(), depth);
        } else {
            type_error("Object of type " + value.type_name() + " is not JSON serializable");
        }
    }
    void put_dict(const Dict& dict, int depth) {
        std::span<const Dict::Entry> entries = dict.entries();
        ArenaVector<Dict::Entry> sorted(context_.arena);
        if (style_.sort_keys) {
            sorted.append(entries);
            std::stable_sort(sorted.begin(), sorted.end(),
                             [](const Dict::Entry& a, const Dict::Entry& b) { return less(a.key, b.key); });
            entries = sorted.view();
        }
        put_all('{', '}', entries.size(), depth, [&](std::size_t i) {
            const Value& key = entries[i].key;
            if (key.is_text()) {
                put_text(key.bytes());
            } else {
                put_text(key_text(key));
            }
            raw(style_.key_separator);
            put(entries[i].value, depth + 1);
        });
    }
    template <class PutItem>
    void put_all(char open, char close, std::size_t count, int depth, PutItem&& put_item) {
        out_.push_back(open);
        for (std::size_t i = 0; i < count; ++i) {
            if (i > 0) raw(style_.item_separator);
            new_line(depth + 1);
            put_item(i);
        }
        if (count > 0) new_line(depth);
        out_.push_back(close);
    }
    void new_line(int depth) {
        if (!style_.indent) return;
        out_.push_back('\n');
        for (int i = 0; i < depth; ++i) raw(*style_.indent);
        context_.charge_bytes(out_.size() > context_.limits().output_bytes ? out_.size() : 0);
    }
    void raw(std::string_view text) { out_.append(text); }
    static std::string float_text(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return repr_of_float(value);
    }
    static std::string key_text(const Value& key) {
        if (key.is_none()) return "null";
        if (key.is_bool()) return key.boolean() ? "true" : "false";
        if (key.is_int()) return integer_text(key.integer());
        if (key.is_float()) return float_text(key.floating());
        type_error("keys must be str, int, float, bool or None, not " + key.type_name());
    }
    bool is_plain(char c) const {
        const auto byte = static_cast<unsigned char>(c);
        return byte >= 0x20 && c != '"' && c != '\\' && (byte < 0x80 || !style_.ensure_ascii);
    }
    void put_text(std::string_view text) {
        context_.charge_characters(text.size());
        out_.push_back('"');
        for (std::size_t at = 0; at < text.size();) {
            std::size_t end = at;
            while (end < text.size() && is_plain(text[end])) ++end;
            raw(text.substr(at, end - at));
            at = end;
            if (at == text.size()) break;
            const CodePoint point = code_point_at(text, at);
            put_escaped(point.value);
            at += point.bytes;
        }
        out_.push_back('"');
    }
    void put_escaped(char32_t c) {
        constexpr std::string_view kCharacters = "\"\\\n\r\t\b\f";
        constexpr std::string_view kLetters = "\"\\nrtbf";
        const std::size_t found = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
        if (found != std::string_view::npos) {
            out_.push_back('\\');
            out_.push_back(kLetters[found]);
        } else if (c < 0x10000) {
            put_unit(c);
        } else {
            put_unit(0xD800 + ((c - 0x10000) >> 10));
            put_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
    void put_unit(char32_t unit) {
        std::array<char, 16> text{};
        std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(unit));
        raw(text.data());
    }

    Context& context_;
    const JsonStyle& style_;
    ArenaVector<char> out_;
};

}  // namespace

Text to_json(Context& context, const Value& value, const JsonStyle& style) {
    return Writer(context, style).write(value);
}

}  // namespace attune::jinja
