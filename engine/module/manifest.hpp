#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "engine/model/model_shape.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace attune {

/// What a module_config.json says (DESIGN, module package). Only the adapter part is served today; packages with a
/// state, members or requirements are refused by name.
struct Manifest {
    std::string name;
    std::string version;
    std::string description;
    std::string license;
    std::string adapter_path;  ///< relative, normal form, "." for the package's own folder
    double adapter_scale = 1.0;
    std::optional<RouteRule> routing;
    std::optional<ColdPolicy> cold;
    bool pin = false;
    std::string owner;
    std::string base_match = "shape";  ///< shape, checkpoint, unverified
    std::string hashed_json;           ///< the part that belongs to the generation, as compact JSON with sorted keys
};

/// Checks the text whole, its base against `base`. Errc::invalid_module naming the key; Errc::unavailable when a
/// checkpoint is asked for that the base does not know yet, unless `allow_unverified`.
Result<Manifest> parse_manifest(std::span<const std::byte> text, const ModelShape& base, bool allow_unverified);

}  // namespace attune
