#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace attune::jinja {
namespace {

std::optional<Integer> parse_integer(Arena& arena, const Text& text, int base) {
    bool negative = false;
    std::string_view rest = strip(arena, text, Side::both).bytes();
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

std::optional<double> parse_float(Arena& arena, const Text& text) {
    std::string digits(lower(arena, strip(arena, text, Side::both)).bytes());
    std::erase(digits, '_');
    if (digits.empty() || digits.find('x') != std::string::npos || digits.size() > 400) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (end != digits.c_str() + digits.size()) return std::nullopt;
    return value;
}

std::optional<double> as_float(Arena& arena, const Value& value) {
    require_defined(value);
    if (value.is_number()) return value.number();
    if (value.is_text()) return parse_float(arena, value.text());
    return std::nullopt;
}

Value to_int(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("int", arguments, {"default", "base"});
    require_defined(value);
    if (value.is_integral()) return value.integer();
    if (value.is_text()) {
        const auto base = static_cast<int>(std::clamp<std::int64_t>(bound.or_int(1, 10), 2, 36));
        if (const auto parsed = parse_integer(context.arena, value.text(), base)) return *parsed;
    }
    const auto number = as_float(context.arena, value);
    if (number && std::isfinite(*number) && std::fabs(*number) < 1e38) return static_cast<Integer>(*number);
    return bound.or_value(0, Value(0));
}

Value to_float(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("float", arguments, {"default"});
    const auto number = as_float(context.arena, value);
    return number ? Value(*number) : bound.or_value(0, Value(0.0));
}

Value absolute(Context&, const Value& value, const Arguments&) {
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

Value round(Context&, const Value& value, const Arguments& arguments) {
    const Bound bound("round", arguments, {"precision", "method"});
    require_defined(value);
    if (!value.is_number()) type_error("type " + value.type_name() + " doesn't define __round__ method");
    const std::int64_t digits = std::clamp<std::int64_t>(bound.or_int(0, 0), -400, 400);
    const std::string_view method = bound.has(1) ? bound.text(1).bytes() : "common";
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

Value file_size(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("filesizeformat", arguments, {"binary"});
    const auto bytes = as_float(context.arena, value);
    if (!bytes) throw Failure("ValueError", "could not convert to float");
    const bool binary = bound.or_bool(0, false);
    const double base = binary ? 1024 : 1000;
    if (*bytes == 1) return "1 Byte";
    if (*bytes < base) return Value(context.arena.copy(integer_text(static_cast<Integer>(*bytes)) + " Bytes"));
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
    return Value(context.arena.copy(text.data()));
}

Value url_encode(Context& context, const Value& value, const Arguments&) {
    const auto quote = [&](const Value& part, bool in_query) {
        const Text text = to_text(context.arena, part);
        context.charge_bytes(text.size());
        std::string out;
        for (const char c : text.bytes()) {
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
        return Text(context.arena.copy(out), text.has_literal());
    };
    const bool pairs = value.is_dict() || value.is_list_or_tuple();
    if (!pairs) return quote(value, false);
    const Value items = value.is_dict() ? call_method(context, value, "items") : value;
    TextBuilder builder(context.arena);
    for (const Value& pair : items_of(context, items)) {
        const auto parts = items_of(context, pair);
        if (parts.size() != 2) throw Failure("ValueError", "not enough values to unpack");
        if (builder.size() > 0) builder.append("&");
        builder.append(quote(parts[0], true));
        builder.append("=");
        builder.append(quote(parts[1], true));
    }
    return builder.take();
}

Value default_value(Context&, const Value& value, const Arguments& arguments) {
    const Bound bound("default", arguments, {"default_value", "boolean"});
    const bool wanted = value.is_undefined() || (bound.or_bool(1, false) && !is_true(value));
    return wanted ? bound.or_value(0, Value("")) : value;
}

Value attribute(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("attr", arguments, {"name"}, 1);
    const std::string_view name = bound.text(0).bytes();
    const Member& known = find_member(name);
    if (value.is_dict() && known.of_dict == nullptr) {
        Undefined undefined;  // attributes only, never items
        undefined.owner_type = value.type();
        undefined.name = name;
        return context.arena.make<const Undefined>(undefined);
    }
    return attribute_of(context, value, name, known);
}

Value pretty(Context& context, const Value& value, const Arguments&) { return to_repr(context.arena, value); }

}  // namespace

const FilterTable& value_filters() {
    static const FilterTable table = {
        {"abs", absolute},
        {"attr", attribute},
        {"d", default_value},
        {"default", default_value},
        {"filesizeformat", file_size},
        {"float", to_float},
        {"int", to_int},
        {"pprint", pretty},
        {"round", round},
        {"urlencode", url_encode},
    };
    return table;
}

}  // namespace attune::jinja
