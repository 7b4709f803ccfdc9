#pragma once

#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"
#include "engine/schedule/batch.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace attune {

struct Bf16DotKernels;

/// Where a step's rows lie in the cache: worked out once per forward pass, used by every layer.
struct KvStep {
    std::vector<std::int32_t> positions;    // [rows]
    std::vector<std::int32_t> first_block;  // [rows], begin of the row's table in `blocks`
    std::vector<std::int32_t> blocks;       // all block tables
    int last_position = 0;                  ///< highest of `positions`

    /// Sequences with equally many rows, for the libtorch path: a step's decode rows are one group.
    struct Group {
        torch::Tensor rows;       // [sequences * rows] int64, where they lie in the step
        torch::Tensor tables;     // [sequences, blocks] int64, padded with block 0
        torch::Tensor positions;  // [sequences, rows] int64
    };
    std::vector<Group> groups;
    torch::Tensor row_blocks;   // [rows] int64, the block each row is written to
    torch::Tensor row_offsets;  // [rows] int64, and the position inside
};

/// The key and value tensors of every layer, in blocks of kBlockTokens positions. Hides dtype, layout and (later)
/// scales; who owns which block is decided by BlockPool, which knows only numbers.
class KvCache {
public:
    /// `torch_kernels`: the libtorch path even on the CPU. `bf16_activations`: a bfloat16 cache is multiplied with
    /// rounded queries and weights, by bf16_dot_kernels().
    KvCache(const ModelShape& shape, int blocks, torch::Dtype dtype, torch::Device device, bool torch_kernels = false,
            bool bf16_activations = false);

    static std::uint64_t bytes_per_block(const ModelShape& shape, torch::Dtype dtype);

    KvStep prepare(const Batch& batch) const {
        KvStep step;
        prepare(batch, step);
        return step;
    }
    /// Into a step of before, whose memory is used again.
    void prepare(const Batch& batch, KvStep& step) const;

    /// k, v: [rows, kv_heads * head_dim] float32, one row per token of the step, RoPE applied.
    void write(int layer, const torch::Tensor& k, const torch::Tensor& v, const KvStep& step);

    /// q: [rows, heads * head_dim] float32 -> the same shape. Causal, with the layer's window; reads what write()
    /// stored, also for the step's own rows. `out`: where the CPU's kernels write the result, contiguous; without, and
    /// on libtorch, it is a new tensor.
    torch::Tensor attend(int layer, const torch::Tensor& q, const KvStep& step, torch::Tensor out = {}) const;

    /// A module's prefix at positions 0.. of `blocks`, in every layer, rounded to the cache's dtype; a position in the
    /// last block behind it is left as it is. The caller owns the blocks and shares them as it likes.
    void write_prefix(std::span<const BlockId> blocks, const PrefixSegment& prefix);

    /// Copies whole blocks (from, to) in every layer: copy on write of a partly filled block.
    void copy(std::span<const std::pair<BlockId, BlockId>> pairs);

    int blocks() const { return blocks_; }

private:
    torch::Tensor attend_group(int layer, const torch::Tensor& q, const KvStep::Group& group) const;
    torch::Tensor attend_kernel(int layer, const torch::Tensor& q, const KvStep& step, torch::Tensor out) const;

    ModelShape shape_;
    int blocks_;
    bool kernels_;
    const Bf16DotKernels* dots_;  // null: queries and weights stay float32
    // Keys lie dimension by dimension, so that the scores of a block's 16 positions are one vector.
    std::vector<torch::Tensor> keys_;    // per layer [blocks, kv_heads, head_dim, kBlockTokens]
    std::vector<torch::Tensor> values_;  // per layer [blocks, kv_heads, kBlockTokens, head_dim rounded up to 16]
};

}  // namespace attune
