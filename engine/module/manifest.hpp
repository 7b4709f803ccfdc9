#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/json_text.hpp"
#include "engine/module/state_part.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace attune {

/// What a module_config.json says (DESIGN, module package): an adapter, a state or both, or only members (a named
/// composition).
struct Manifest {
    std::string name;
    std::string version;
    std::string description;
    std::string license;
    std::string adapter_path;  ///< relative, normal form, "." for the package's own folder; empty: no adapter
    double adapter_scale = 1.0;
    std::optional<StateConfig> state;
    int order = 0;
    std::vector<Requirement> needs;       ///< the file's `requires`
    std::vector<WeightedModule> members;  ///< of a composition
    Combine combine = Combine::sequence;  ///< how the members' states combine
    std::optional<RouteRule> routing;
    std::optional<ColdPolicy> cold;
    bool pin = false;
    std::string owner;
    std::string base_match = "shape";  ///< shape, checkpoint, unverified
    std::string hashed_json;           ///< the part that belongs to the generation, as compact JSON with sorted keys
};

/// A path inside the package, in normal form. Errc::invalid_module naming `key` for one that is absolute or leaves it.
Result<std::string> relative_path(const OrderedJson& value, const std::string& key);

/// Checks the text whole, its base against `base`. Errc::invalid_module naming the key; Errc::unavailable when a
/// checkpoint is asked for that the base does not know yet, unless `allow_unverified`.
Result<Manifest> parse_manifest(std::span<const std::byte> text, const ModelShape& base, bool allow_unverified);

}  // namespace attune
