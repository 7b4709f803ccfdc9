#pragma once

#include "engine/text/jinja/value.hpp"

#include <cstdint>
#include <string>

namespace attune::jinja {

/// The widest field and the finest precision that a format may ask for.
constexpr std::int64_t kMaxWidth = 100'000;
constexpr std::int64_t kMaxPrecision = 300;

/// How one field is to look, for both of Python's ways to format.
struct FormatSpec {
    char fill = ' ';
    char align = 0;  // < > ^ =, 0: by type
    char sign = '-';
    bool alternate = false;
    char thousands = 0;
    std::int64_t width = 0;
    std::int64_t precision = -1;
    char type = 0;
};

/// ValueError for fields that are too wide.
void check(const FormatSpec& spec);
Text placed_text(Arena& arena, const FormatSpec& spec, Text text);
/// Sign, prefix and digits put together to the width.
std::string placed_number(const FormatSpec& spec, bool negative, const std::string& prefix, std::string digits);
std::string float_digits(double value, char type, std::int64_t precision);
std::string formatted_integer(const FormatSpec& spec, Integer value);
std::string formatted_float(const FormatSpec& spec, double value);

}  // namespace attune::jinja
