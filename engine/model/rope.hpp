#pragma once

#include "engine/model/model_config.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <utility>

namespace attune {

/// Rotation speeds of a head's dimension pairs, [head_dim / 2] float32, in transformers' own order of roundings.
torch::Tensor inverse_frequencies(const RopeConfig& rope, int head_dim);

/// Rotary position embedding with frequencies fixed at load. Angles are worked out per step for its rows only: a table
/// over the whole context would be tens of megabytes and no faster.
class Rope {
public:
    Rope(const RopeConfig& rope, int head_dim, torch::Device device);

    /// positions: [rows] -> cos and sin, [rows, head_dim / 2] float32, attention factor included.
    std::pair<torch::Tensor, torch::Tensor> angles(const torch::Tensor& positions) const;
    /// The same on the CPU, into `cos` and `sin` and without a tensor.
    void angles(std::span<const std::int32_t> positions, float* cos, float* sin) const;

private:
    torch::Tensor frequencies_;  // [head_dim / 2]
    double attention_factor_;
};

}  // namespace attune
