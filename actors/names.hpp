#pragma once

#include "attune/result.hpp"

#include <string>
#include <string_view>

namespace attune {

/// DESIGN §4: 1-128 letters (any script, NFC) and digits, with `.`, `_` and `-` inside; not `auto`, not the base's id.
Result<void> check_module_name(std::string_view name, std::string_view base_id);

/// A name as a client wrote it, in the composed form that names have: keyboards and file systems decompose.
std::string module_name(std::string_view asked);

}  // namespace attune
