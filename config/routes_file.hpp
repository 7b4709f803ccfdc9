#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

/// Reads routes.toml. Errors name the file (never its folder), the rule by its number in the file, the key and what is
/// allowed. Whether the modules exist is not asked here: they may come later. Patterns and the classifier's file, whose
/// path comes out beside this one, are looked at when they are compiled (engine/route).
Result<RouteFile> read_routes(const std::filesystem::path& path);

/// The same from text; `name` is what errors call it.
Result<RouteFile> parse_routes(std::string_view toml, const std::string& name);

/// The same keys in JSON: {"default": .., "rule": [..], "users": {..}, "classifier": {..}}. A classifier's file is a
/// plain name beside `file`, the watched routes file; without one there is none.
Result<RouteFile> parse_routes_json(std::string_view json, const std::filesystem::path& file);

/// Changes when the file, or the classifier's that is in force, does: modification time, size and inode of both.
std::string routes_stamp(const std::filesystem::path& path, const RouteFile& in_force);

}  // namespace attune
