#pragma once

#include "attune/ids.hpp"
#include "engine/model/model_shape.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// One low-rank update y += scale * ((x A^T) B^T) on one projection of one layer (LoRA, arXiv 2106.09685).
struct LowRankPair {
    int layer = 0;
    Projection projection{};
    int rank = 0;
    float scale = 1.0F;    ///< alpha / r, or alpha / sqrt(r) with rsLoRA; from the true rank
    std::vector<float> a;  // [rank, in]
    std::vector<float> b;  // [out, rank]
};

/// A module's content: checked whole, then never changed. Torch-free, so that loaders need no device.
/// Later kinds (states, prefixes, gains) become further members beside `pairs`.
struct Module {
    ModuleId id;                     ///< name it was loaded under and generation
    std::string kind;                ///< lora
    std::vector<LowRankPair> pairs;  ///< ascending (layer, projection)
    int max_rank = 0;
    bool unverified = false;
    std::string base_match;        ///< shape, checkpoint, unverified
    std::uint64_t host_bytes = 0;  ///< what the vectors above hold
};

using ModulePtr = std::shared_ptr<const Module>;

}  // namespace attune
