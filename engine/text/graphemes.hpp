#pragma once

#include <cstddef>
#include <string_view>

namespace attune {

/// Where the grapheme cluster that begins at `begin` ends. text must be valid UTF-8.
std::size_t grapheme_end(std::string_view text, std::size_t begin);

}  // namespace attune
