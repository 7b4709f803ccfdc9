#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

/// Reads routes.toml. Errors name the file (never its folder), the rule by its number in the file, the key and what is
/// allowed. Whether the modules exist is not asked here: they may come later.
Result<RouteFile> read_routes(const std::filesystem::path& path);

/// The same from text; `name` is what errors call it.
Result<RouteFile> parse_routes(std::string_view toml, const std::string& name);

}  // namespace attune
