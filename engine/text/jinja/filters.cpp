#include "engine/text/jinja/filters.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace attune::jinja {
namespace {

/// The subject as text: str(value), as soft_str does.
Text soft(Context& context, const Value& value) {
    Text text = to_text(value);
    context.charge_bytes(text.bytes.size());
    return text;
}

template <Text (*Change)(const Text&)>
Value changed(Context& context, const Value& value, Arguments) {
    const Text text = soft(context, value);
    context.charge_characters(text.bytes.size());
    return Change(text);
}

/// Jinja's own title: words begin after space, hyphen and opening brackets only.
Text words_title(const Text& text) {
    TextBuilder builder;
    std::size_t begin = 0;
    const auto put = [&](std::size_t end) {
        if (begin < end) builder.append(capitalize(slice_bytes(text, begin, end)));
    };
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = code_point_at(text.bytes, at);
        const std::size_t next = at + point.bytes;
        const bool separates = point.value == '-' || point.value == '(' || point.value == '{' || point.value == '[' ||
                               point.value == '<' || is_python_space(point.value);
        if (separates) {
            put(at);
            builder.append(text, at, next);
            begin = next;
        }
        at = next;
    }
    put(text.bytes.size());
    return builder.take();
}

Value trim(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("trim", std::move(arguments), {"chars"});
    const Text text = soft(context, value);
    if (!bound.has(0) || bound[0].is_none()) return strip(text, Side::both);
    return strip(text, Side::both, bound.text(0).bytes);
}

Value replace_filter(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
    const Text text = soft(context, value);
    const std::int64_t count = bound.has(2) && !bound[2].is_none() ? index_of(bound[2]) : -1;
    Text result = replace(text, to_text(bound[0]), to_text(bound[1]), count);
    context.charge_bytes(result.bytes.size());
    return result;
}

Value center(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("center", std::move(arguments), {"width"});
    const std::int64_t width = bound.or_int(0, 80);
    if (width > 0) context.charge_bytes(static_cast<std::size_t>(width));
    return pad(soft(context, value), width, " ", Side::both);
}

Value string(Context& context, const Value& value, Arguments) { return soft(context, value); }

Value escape(Context& context, const Value& value, Arguments) {
    const Text text = soft(context, value);
    context.charge_characters(text.bytes.size());
    return text.markup ? text : escape_html(text);
}

Value force_escape(Context& context, const Value& value, Arguments) { return escape_html(soft(context, value)); }

Value safe(Context& context, const Value& value, Arguments) {
    Text text = soft(context, value);
    text.markup = true;
    return text;
}

Value indent(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("indent", std::move(arguments), {"width", "first", "blank"});
    require_defined(value);
    if (!value.is_text()) type_error("can only concatenate str (not \"" + value.type_name() + "\") to str");
    Text step;
    if (bound.has(0) && bound[0].is_text()) {
        step = bound[0].text();
    } else {
        const std::int64_t width = std::max<std::int64_t>(bound.or_int(0, 4), 0);
        context.charge_bytes(static_cast<std::size_t>(width));
        step = Text(std::string(static_cast<std::size_t>(width), ' '));
    }
    const bool blank = bound.or_bool(2, false);
    TextBuilder ended;
    ended.append(value.text());
    ended.append("\n");
    const auto lines = split_lines(ended.take(), false);
    context.charge_bytes(value.bytes().size() + lines.size() * step.bytes.size());
    TextBuilder builder;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) builder.append("\n");
        const bool indented = i == 0 ? bound.or_bool(1, false) : blank || !lines[i].bytes.empty();
        if (indented) builder.append(step);
        builder.append(lines[i]);
    }
    return builder.take();
}

Value truncate(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
    const Text text = soft(context, value);
    const std::int64_t length = bound.or_int(0, 255);
    const Text end = bound.has(2) ? bound.text(2) : Text("...");
    const auto end_length = static_cast<std::int64_t>(length_of(end));
    const std::int64_t leeway = bound.has(3) && !bound[3].is_none() ? index_of(bound[3]) : 5;
    if (length < end_length) throw Failure("AssertionError", "expected length >= " + std::to_string(end_length));
    if (static_cast<std::int64_t>(length_of(text)) <= length + leeway) return text;
    Text kept = slice_bytes(text, 0, offset_of(text.bytes, static_cast<std::size_t>(length - end_length)));
    if (!bound.or_bool(1, false)) kept = split_on(kept, " ", 1, true).front();
    TextBuilder builder;
    builder.append(kept);
    builder.append(end);
    return builder.take();
}

Value word_count(Context& context, const Value& value, Arguments) {
    const Text text = soft(context, value);
    std::int64_t words = 0;
    bool inside = false;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = code_point_at(text.bytes, at);
        const bool word = is_word_character(point.value);
        words += word && !inside ? 1 : 0;
        inside = word;
        at += point.bytes;
    }
    return words;
}

/// Words are kept whole where they fit; a longer one is cut.
Value word_wrap(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("wordwrap", std::move(arguments), {"width", "break_long_words", "wrapstring"});
    const Text text = soft(context, value);
    const std::int64_t width = std::max<std::int64_t>(bound.or_int(0, 79), 1);
    const bool breaks = bound.or_bool(1, true);
    const Text wrap = bound.has(2) && bound[2].is_text() ? bound[2].text() : Text("\n");
    TextBuilder builder;
    bool first_line = true;
    for (const Text& line : split_lines(text, false)) {
        if (!first_line) builder.append(wrap);
        first_line = false;
        std::int64_t column = 0;
        for (Text word : split_on_space(line, -1, false)) {
            auto length = static_cast<std::int64_t>(length_of(word));
            if (column > 0 && column + 1 + length > width) {
                builder.append(wrap);
                column = 0;
            } else if (column > 0) {
                builder.append(" ");
                ++column;
            }
            while (breaks && length > width) {
                const std::size_t cut = offset_of(word.bytes, static_cast<std::size_t>(width));
                builder.append(word, 0, cut);
                builder.append(wrap);
                word = slice_bytes(word, cut, word.bytes.size());
                length -= width;
            }
            context.charge();
            builder.append(word);
            column += length;
        }
    }
    return builder.take();
}

Value format(Context& context, const Value& value, Arguments arguments) {
    const Text text = soft(context, value);
    if (!arguments.keyword.empty()) {
        if (!arguments.positional.empty()) {
            throw Failure("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
        }
        Dict named;
        for (auto& [name, argument] : arguments.keyword) named.set(Value(name), std::move(argument));
        return format_percent(context, text, Value(std::move(named)));
    }
    List list;
    list.tuple = true;
    list.items = std::move(arguments.positional);
    return format_percent(context, text, Value(std::move(list)));
}

Value to_json_filter(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = bound.or_bool(0, false);
    if (bound.has(1) && !bound[1].is_none()) {
        if (bound[1].is_text()) {
            style.indent = bound[1].bytes();
        } else {
            const std::int64_t width = std::clamp<std::int64_t>(index_of(bound[1]), 0, 1000);
            style.indent = std::string(static_cast<std::size_t>(width), ' ');
        }
        style.item_separator = ",";
    }
    if (bound.has(2) && !bound[2].is_none()) {
        const auto separators = items_of(context, bound[2]);
        if (separators->items.size() != 2 || !separators->items[0].is_text() || !separators->items[1].is_text()) {
            type_error("tojson() separators must be two texts");
        }
        style.item_separator = separators->items[0].bytes();
        style.key_separator = separators->items[1].bytes();
    }
    style.sort_keys = bound.or_bool(3, false);
    return to_json(context, value, style);
}

// ---- numbers ----

std::optional<Integer> parse_integer(std::string_view text, int base) {
    std::string digits;
    bool negative = false;
    const Text trimmed = strip(Text(std::string(text)), Side::both);
    std::string_view rest = trimmed.bytes;
    if (rest.starts_with('-') || rest.starts_with('+')) {
        negative = rest[0] == '-';
        rest.remove_prefix(1);
    }
    const auto has_prefix = [&](char letter) {
        return rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == letter;
    };
    if ((base == 16 && has_prefix('x')) || (base == 8 && has_prefix('o')) || (base == 2 && has_prefix('b'))) {
        rest.remove_prefix(2);
    }
    if (rest.empty()) return std::nullopt;
    Integer value = 0;
    for (std::size_t i = 0; i < rest.size(); ++i) {
        const char c = rest[i];
        if (c == '_' && i > 0 && i + 1 < rest.size() && rest[i - 1] != '_') continue;
        int digit = -1;
        if (c >= '0' && c <= '9') digit = c - '0';
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') digit = (c | 0x20) - 'a' + 10;
        if (digit < 0 || digit >= base) return std::nullopt;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
            return std::nullopt;
        }
    }
    return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
    std::string digits = lower(strip(Text(std::string(text)), Side::both)).bytes;
    std::erase(digits, '_');
    if (digits.empty() || digits.find('x') != std::string::npos || digits.size() > 400) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (end != digits.c_str() + digits.size()) return std::nullopt;
    return value;
}

std::optional<double> as_float(const Value& value) {
    require_defined(value);
    if (value.is_number()) return value.number();
    if (value.is_text()) return parse_float(value.bytes());
    return std::nullopt;
}

Value to_int(Context&, const Value& value, Arguments arguments) {
    const Bound bound("int", std::move(arguments), {"default", "base"});
    require_defined(value);
    if (value.is_integral()) return value.integer();
    if (value.is_text()) {
        const auto base = static_cast<int>(std::clamp<std::int64_t>(bound.or_int(1, 10), 2, 36));
        if (const auto parsed = parse_integer(value.bytes(), base)) return *parsed;
    }
    const auto number = as_float(value);
    if (number && std::isfinite(*number) && std::fabs(*number) < 1e38) return static_cast<Integer>(*number);
    return bound.or_value(0, Value(0));
}

Value to_float(Context&, const Value& value, Arguments arguments) {
    const Bound bound("float", std::move(arguments), {"default"});
    const auto number = as_float(value);
    return number ? Value(*number) : bound.or_value(0, Value(0.0));
}

Value absolute(Context&, const Value& value, Arguments) {
    require_defined(value);
    if (value.is_float()) return std::fabs(value.floating());
    if (!value.is_integral()) type_error("bad operand type for abs(): '" + value.type_name() + "'");
    return value.integer() < 0 ? negate(value) : Value(value.integer());
}

/// round(x, digits): correctly rounded in decimal, halves to even as the binary value says.
double round_to(double value, std::int64_t digits) {
    if (!std::isfinite(value) || digits > 300) return value;
    if (digits >= 0) {
        std::array<char, 700> text{};
        std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(digits), value);
        return std::strtod(text.data(), nullptr);
    }
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
}

Value round(Context&, const Value& value, Arguments arguments) {
    const Bound bound("round", std::move(arguments), {"precision", "method"});
    require_defined(value);
    if (!value.is_number()) type_error("type " + value.type_name() + " doesn't define __round__ method");
    const std::int64_t digits = std::clamp<std::int64_t>(bound.or_int(0, 0), -400, 400);
    const std::string method = bound.has(1) ? bound.text(1).bytes : "common";
    if (method == "common") {
        if (value.is_integral() && digits >= 0) return value.integer();
        const double rounded = round_to(value.number(), digits);
        return value.is_integral() ? Value(static_cast<Integer>(rounded)) : Value(rounded);
    }
    if (method != "ceil" && method != "floor") {
        throw Failure("FilterArgumentError", "method must be common, ceil or floor");
    }
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = value.number() * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value file_size(Context&, const Value& value, Arguments arguments) {
    const Bound bound("filesizeformat", std::move(arguments), {"binary"});
    const auto bytes = as_float(value);
    if (!bytes) throw Failure("ValueError", "could not convert to float");
    const bool binary = bound.or_bool(0, false);
    const double base = binary ? 1024 : 1000;
    if (*bytes == 1) return "1 Byte";
    if (*bytes < base) return integer_text(static_cast<Integer>(*bytes)) + " Bytes";
    constexpr std::string_view kUnits = "kMGTPEZY";
    double unit = base;
    std::size_t at = 0;
    while (at + 1 < kUnits.size() && *bytes >= unit * base) {
        unit *= base;
        ++at;
    }
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.1f %c%sB", *bytes / unit, binary ? std::toupper(kUnits[at]) : kUnits[at],
                  binary ? "i" : "");
    return std::string(text.data());
}

Value url_encode(Context& context, const Value& value, Arguments) {
    const auto quote = [&](const Value& part, bool in_query) {
        const Text text = soft(context, part);
        std::string out;
        for (const char c : text.bytes) {
            const auto byte = static_cast<unsigned char>(c);
            const bool plain =
                std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
            std::array<char, 4> escaped{};
            std::snprintf(escaped.data(), escaped.size(), "%%%02X", byte);
            if (plain) {
                out += c;
            } else {
                out += in_query && c == ' ' ? "+" : escaped.data();
            }
        }
        return Text(std::move(out), text.has_literal());
    };
    const bool pairs = value.is_dict() || value.is_list_or_tuple();
    if (!pairs) return quote(value, false);
    const Value items = value.is_dict() ? call(context, method_of(context, value, "items"), {}) : value;
    TextBuilder builder;
    for (const Value& pair : items_of(context, items)->items) {
        const auto parts = items_of(context, pair);
        if (parts->items.size() != 2) throw Failure("ValueError", "not enough values to unpack");
        if (builder.size() > 0) builder.append("&");
        builder.append(quote(parts->items[0], true));
        builder.append("=");
        builder.append(quote(parts->items[1], true));
    }
    return builder.take();
}

Value default_value(Context&, const Value& value, Arguments arguments) {
    const Bound bound("default", std::move(arguments), {"default_value", "boolean"});
    const bool wanted = value.is_undefined() || (bound.or_bool(1, false) && !is_true(value));
    return wanted ? bound.or_value(0, Value("")) : value;
}

Value attribute(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("attr", std::move(arguments), {"name"}, 1);
    const std::string& name = bound.text(0).bytes;
    if (value.is_dict() && method_of(context, value, name).is_undefined()) {
        Undefined undefined;  // attributes only, never items
        undefined.owner = value.described();
        undefined.name = name;
        return undefined;
    }
    return attribute_of(context, value, name);
}

}  // namespace

const FilterTable& text_filters() {
    static const FilterTable table = {
        {"abs", absolute},
        {"attr", attribute},
        {"capitalize", changed<capitalize>},
        {"center", center},
        {"d", default_value},
        {"default", default_value},
        {"e", escape},
        {"escape", escape},
        {"filesizeformat", file_size},
        {"float", to_float},
        {"forceescape", force_escape},
        {"format", format},
        {"indent", indent},
        {"int", to_int},
        {"lower", changed<lower>},
        {"pprint", [](Context&, const Value& v, Arguments) { return Value(to_repr(v)); }},
        {"replace", replace_filter},
        {"round", round},
        {"safe", safe},
        {"string", string},
        {"title", changed<words_title>},
        {"tojson", to_json_filter},
        {"trim", trim},
        {"truncate", truncate},
        {"upper", changed<upper>},
        {"urlencode", url_encode},
        {"wordcount", word_count},
        {"wordwrap", word_wrap},
    };
    return table;
}

Filter find_filter(std::string_view name) {
    for (const FilterTable* table : {&text_filters(), &list_filters()}) {
        const auto found = table->find(name);
        if (found != table->end()) return found->second;
    }
    return nullptr;
}

}  // namespace attune::jinja
