#pragma once

#include <string_view>

namespace attune {

/// Whether `text` is well-formed UTF-8 (Unicode's table 3-7: no overlong forms, no surrogates).
bool is_well_formed_utf8(std::string_view text);

}  // namespace attune
