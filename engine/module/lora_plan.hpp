#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/peft_config.hpp"

#include <string>
#include <vector>

namespace attune {

/// One pair that a LoRA file holds, checked against config and base, values not read yet.
struct PlannedPair {
    int layer = 0;
    Projection projection{};
    int rank = 0;
    double scale = 1.0;
    const StoredTensor* a = nullptr;  // [rank, in]; point into the header
    const StoredTensor* b = nullptr;  // [out, rank]
};

/// Every tensor of the file becomes half of a pair, or the file is refused by that tensor's name; every pair that the
/// config promises is there, and no other. Ascending (layer, projection).
Result<std::vector<PlannedPair>> plan_lora(const SafetensorsHeader& header, const PeftConfig& config,
                                           const ModelShape& base, int max_rank);

}  // namespace attune
