#pragma once

#include "engine/text/jinja/value.hpp"

#include <string_view>

namespace attune::jinja {

/// A request's JSON as Python would hold it: objects keep their order, and every text is literal. Throws Failure
/// (ValueError) for what is no JSON or is nested too deeply.
Value value_from_json(std::string_view json);

}  // namespace attune::jinja
