#pragma once

#include "engine/text/jinja/value.hpp"

#include <string_view>

namespace attune::jinja {

using Filter = Value (*)(Context& context, const Value& subject, const Arguments& arguments);
using Test = bool (*)(Context& context, const Value& subject, const Arguments& arguments);

/// Null when there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

}  // namespace attune::jinja
