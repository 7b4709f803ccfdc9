#pragma once

#include "engine/model/model_shape.hpp"
#include "engine/schedule/batch.hpp"

#include <torch/torch.h>

#include <span>
#include <utility>
#include <vector>

namespace attune {

/// The key and value tensors of every layer, in blocks of kBlockTokens positions. Hides dtype, layout and (later)
/// scales; who owns which block is decided by BlockPool, which knows only numbers.
class KvCache {
public:
    KvCache(const ModelShape& shape, int blocks, torch::Dtype dtype, torch::Device device);

    static std::uint64_t bytes_per_block(const ModelShape& shape, torch::Dtype dtype);

    /// k, v: [rows, kv_heads, head_dim], one row per token of the step, RoPE applied.
    void write(int layer, const torch::Tensor& k, const torch::Tensor& v, const Batch& batch);

    /// q: [rows, heads, head_dim] -> [rows, heads * head_dim] in q's dtype. Causal, with the layer's window; reads what
    /// write() stored, also for the step's own rows.
    torch::Tensor attend(int layer, const torch::Tensor& q, const Batch& batch) const;

    /// Copies whole blocks (from, to) in every layer: copy on write of a partly filled block.
    void copy(std::span<const std::pair<BlockId, BlockId>> pairs);

    int blocks() const { return blocks_; }

private:
    ModelShape shape_;
    int blocks_;
    std::vector<torch::Tensor> keys_;    // per layer [blocks, kBlockTokens, kv_heads, head_dim]
    std::vector<torch::Tensor> values_;  // per layer, same shape
};

}  // namespace attune
