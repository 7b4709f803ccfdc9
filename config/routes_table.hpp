#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"

#include <toml_parser.hpp>

#include <string>

namespace attune {

/// What a routes file says, whether it was written in TOML or in JSON; not for other rooms.
Result<RouteFile> routes_of_table(const toml::table& table, const std::string& name);

}  // namespace attune
