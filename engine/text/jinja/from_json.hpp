#pragma once

#include "engine/text/jinja/value.hpp"

#include <string_view>

namespace attune::jinja {

/// JSON as Python's json.loads reads it, every string and container marked as the request's. Values live in `arena`
/// and share the bytes of `json`, which must outlive them. Throws Failure (ValueError) for what is not valid JSON or
/// nested too deeply.
Value value_from_json(Arena& arena, std::string_view json);

}  // namespace attune::jinja
