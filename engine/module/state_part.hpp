#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/json_text.hpp"
#include "engine/module/module.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace attune {

class GenerationHash;

/// The `state` of a module_config.json (DESIGN, module package): where its tensors lie and what they mean.
struct StateConfig {
    std::string path;  ///< relative, normal form
    StateKind kind{};
    Activation activation = Activation::identity;
    std::vector<int> layers;    ///< ascending
    std::vector<float> scales;  ///< one for each layer
};

/// `layers` is a list of 0-based numbers, "12-19" (both included) or "middle:8". Errc::invalid_module naming the key.
Result<StateConfig> parse_state_config(const OrderedJson& state, const ModelShape& base);

/// Checks a state file's header: every listed layer has its tensors, in shape, and there are no others. The layers'
/// vectors are empty.
struct StatePlan {
    std::vector<StateLayer> layers;
    std::uint64_t parsed_bytes = 0;
};
Result<StatePlan> plan_state(const SafetensorsHeader& header, const StateConfig& config, const ModelShape& base);

/// Reads the file's tensors once, in the order of the file, hashing each byte; every value must be finite.
Result<void> read_state(const ReadOnlyFile& file, const SafetensorsHeader& header, const StatePlan& plan,
                        GenerationHash& hash, Module& into);

}  // namespace attune
