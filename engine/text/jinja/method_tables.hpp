#pragma once

#include "engine/text/jinja/members.hpp"

#include <string_view>
#include <unordered_map>

namespace attune::jinja {

using MethodTable = std::unordered_map<std::string_view, Method>;

/// Python's str methods: a file of their own.
const MethodTable& text_methods();

}  // namespace attune::jinja
