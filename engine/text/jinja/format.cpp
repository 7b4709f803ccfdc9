#include "engine/text/jinja/format.hpp"

#include "engine/text/jinja/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace attune::jinja {
namespace {

std::string digits_of(Integer value, int base, bool upper_case) {
    if (value == 0) return "0";
    std::string digits;
    while (value != 0) {
        const int digit = static_cast<int>(value % base);
        digits += static_cast<char>(digit < 10 ? '0' + digit : (upper_case ? 'A' : 'a') + digit - 10);
        value /= base;
    }
    std::reverse(digits.begin(), digits.end());
    return digits;
}

void group_thousands(std::string& digits, char separator) {
    std::size_t end = digits.find_first_not_of("0123456789");
    if (end == std::string::npos) end = digits.size();
    for (std::size_t at = end; at > 3;) {
        at -= 3;
        digits.insert(at, 1, separator);
    }
}

}  // namespace

void check(const FormatSpec& spec) {
    if (spec.width > kMaxWidth || spec.precision > kMaxWidth) throw Failure("ValueError", "a format field is too wide");
}

Text placed_text(Arena& arena, const FormatSpec& spec, Text text) {
    if (spec.precision >= 0) {
        text = slice_bytes(arena, text, 0, offset_of(text.bytes(), static_cast<std::size_t>(spec.precision)));
    }
    const auto length = static_cast<std::int64_t>(length_of(text));
    const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(spec.width - length, 0));
    std::size_t left = 0;
    if (spec.align == '>') left = missing;
    if (spec.align == '^') left = missing / 2;
    TextBuilder builder(arena);
    builder.append(std::string(left, spec.fill));
    builder.append(text);
    builder.append(std::string(missing - left, spec.fill));
    return builder.take();
}

std::string placed_number(const FormatSpec& spec, bool negative, const std::string& prefix, std::string digits) {
    if (spec.thousands != 0) group_thousands(digits, spec.thousands);
    std::string head;
    if (negative) head = "-";
    if (!negative && spec.sign != '-') head = std::string(1, spec.sign);
    head += prefix;
    const auto length = static_cast<std::int64_t>(head.size() + digits.size());
    const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(spec.width - length, 0));
    const char align = spec.align == 0 ? '>' : spec.align;
    if (align == '=') return head + std::string(missing, spec.fill) + digits;
    if (align == '<') return head + digits + std::string(missing, spec.fill);
    if (align == '^') {
        return std::string(missing / 2, spec.fill) + head + digits + std::string(missing - missing / 2, spec.fill);
    }
    return std::string(missing, spec.fill) + head + digits;
}

std::string float_digits(double value, char type, std::int64_t precision) {
    std::array<char, 800> text{};
    const char lower_type = static_cast<char>(type | 0x20);
    const int places = static_cast<int>(precision < 0 ? 6 : std::min(precision, kMaxPrecision));
    if (lower_type == 'f') std::snprintf(text.data(), text.size(), "%.*f", places, value);
    if (lower_type == 'e') std::snprintf(text.data(), text.size(), "%.*e", places, value);
    if (lower_type == 'g') std::snprintf(text.data(), text.size(), "%.*g", places == 0 ? 1 : places, value);
    std::string digits = text.data();
    if (type == 'F' || type == 'E' || type == 'G') {
        std::transform(digits.begin(), digits.end(), digits.begin(),
                       [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    }
    return digits;
}

std::string formatted_integer(const FormatSpec& spec, Integer value) {
    const bool negative = value < 0;
    const Integer size = negative ? -value : value;
    switch (spec.type) {
        case 'x':
            return placed_number(spec, negative, spec.alternate ? "0x" : "", digits_of(size, 16, false));
        case 'X':
            return placed_number(spec, negative, spec.alternate ? "0X" : "", digits_of(size, 16, true));
        case 'o':
            return placed_number(spec, negative, spec.alternate ? "0o" : "", digits_of(size, 8, false));
        case 'b':
            return placed_number(spec, negative, spec.alternate ? "0b" : "", digits_of(size, 2, false));
        default: {
            std::string digits = integer_text(size);
            // %.5d asks for at least five digits.
            const auto shown = static_cast<std::int64_t>(digits.size());
            if (spec.precision > shown) digits.insert(0, static_cast<std::size_t>(spec.precision - shown), '0');
            return placed_number(spec, negative, "", digits);
        }
    }
}

std::string formatted_float(const FormatSpec& spec, double value) {
    const bool negative = std::signbit(value) && !std::isnan(value);
    return placed_number(spec, negative, "", float_digits(std::fabs(value), spec.type, spec.precision));
}

}  // namespace attune::jinja
