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
    Writer(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

    std::string write(const Value& value) {
        put(value, 0);
        return std::move(out_);
    }

private:
    void put(const Value& value, int depth) {
        const Context::Nesting nesting(context_);
        context_.charge();
        if (value.is_text()) {
            put_text(value.bytes());
        } else if (value.is_none()) {
            out_ += "null";
        } else if (value.is_bool()) {
            out_ += value.boolean() ? "true" : "false";
        } else if (value.is_int()) {
            out_ += integer_text(value.integer());
        } else if (value.is_float()) {
            out_ += float_text(value.floating());
        } else if (value.is_list_or_tuple()) {
            const auto& items = value.list().items;
            put_all('[', ']', items.size(), depth, [&](std::size_t i) { put(items[i], depth + 1); });
        } else if (value.is_dict()) {
            put_dict(value.dict(), depth);
        } else {
            type_error("Object of type " + value.type_name() + " is not JSON serializable");
        }
    }
    void put_dict(const Dict& dict, int depth) {
        std::vector<const std::pair<Value, Value>*> entries;
        for (const auto& entry : dict.entries) entries.push_back(&entry);
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(),
                             [](const auto* a, const auto* b) { return less(a->first, b->first); });
        }
        put_all('{', '}', entries.size(), depth, [&](std::size_t i) {
            put_text(key_text(entries[i]->first));
            out_ += style_.key_separator;
            put(entries[i]->second, depth + 1);
        });
    }
    template <class PutItem>
    void put_all(char open, char close, std::size_t count, int depth, PutItem&& put_item) {
        out_ += open;
        for (std::size_t i = 0; i < count; ++i) {
            if (i > 0) out_ += style_.item_separator;
            new_line(depth + 1);
            put_item(i);
        }
        if (count > 0) new_line(depth);
        out_ += close;
    }
    void new_line(int depth) {
        if (!style_.indent) return;
        out_ += '\n';
        for (int i = 0; i < depth; ++i) out_ += *style_.indent;
        context_.charge_bytes(out_.size() > context_.limits().output_bytes ? out_.size() : 0);
    }
    static std::string float_text(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return repr_of_float(value);
    }
    static std::string key_text(const Value& key) {
        if (key.is_text()) return key.bytes();
        if (key.is_none()) return "null";
        if (key.is_bool()) return key.boolean() ? "true" : "false";
        if (key.is_int()) return integer_text(key.integer());
        if (key.is_float()) return float_text(key.floating());
        type_error("keys must be str, int, float, bool or None, not " + key.type_name());
    }
    void put_text(std::string_view text) {
        context_.charge_characters(text.size());
        out_ += '"';
        for (std::size_t at = 0; at < text.size();) {
            const CodePoint point = code_point_at(text, at);
            put_character(point.value, text.substr(at, point.bytes));
            at += point.bytes;
        }
        out_ += '"';
    }
    void put_character(char32_t c, std::string_view bytes) {
        switch (c) {
            case '"':
                out_ += "\\\"";
                return;
            case '\\':
                out_ += "\\\\";
                return;
            case '\n':
                out_ += "\\n";
                return;
            case '\r':
                out_ += "\\r";
                return;
            case '\t':
                out_ += "\\t";
                return;
            case '\b':
                out_ += "\\b";
                return;
            case '\f':
                out_ += "\\f";
                return;
            default:
                break;
        }
        if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
            out_ += bytes;
        } else if (c < 0x10000) {
            put_unit(c);
        } else {
            put_unit(0xD800 + ((c - 0x10000) >> 10));
            put_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
    void put_unit(char32_t unit) {
        if (unit == 0x7F) {  // ASCII to Python, so never escaped
            out_ += '\x7F';
            return;
        }
        std::array<char, 16> text{};
        std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(unit));
        out_ += text.data();
    }

    Context& context_;
    const JsonStyle& style_;
    std::string out_;
};

}  // namespace

Text to_json(Context& context, const Value& value, const JsonStyle& style) {
    std::string text = Writer(context, style).write(value);
    context.charge_bytes(text.size());
    return Text(std::move(text), has_request_text(value));
}

}  // namespace attune::jinja
