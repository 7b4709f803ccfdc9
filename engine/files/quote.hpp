#pragma once

#include <string>
#include <string_view>

namespace attune {

/// A name from a file, fit for an error message: in double quotes, control characters and quotes escaped, cut to about
/// `limit` bytes at a character boundary.
std::string in_quotes(std::string_view name, std::size_t limit = 120);

/// "[16, 4096]"
template <class Shape>
std::string shape_text(const Shape& shape) {
    std::string text = "[";
    for (const auto& extent : shape) {
        if (text.size() > 1) text += ", ";
        text += std::to_string(extent);
    }
    return text + "]";
}

}  // namespace attune
