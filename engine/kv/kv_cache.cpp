#include "engine/kv/kv_cache.hpp"

#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/weights/zero_pages.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace attune {

namespace {

using torch::indexing::Slice;

int value_dim(const ModelShape& shape) { return (shape.head_dim + 15) / 16 * 16; }

torch::Tensor index_tensor(const std::vector<std::int64_t>& values, torch::Device device) {
    return torch::tensor(values, torch::kInt64).to(device);
}

}  // namespace

KvCache::KvCache(const ModelShape& shape, int blocks, torch::Dtype dtype, torch::Device device, bool torch_kernels,
                 bool bf16_activations)
    : shape_(shape),
      blocks_(blocks),
      kernels_(device.is_cpu() && !torch_kernels),
      dots_(bf16_activations && dtype == torch::kBFloat16 ? bf16_dot_kernels() : nullptr) {
    // Zeros: the values' padding is read by the kernels.
    for (int layer = 0; layer < shape_.layer_count(); ++layer) {
        keys_.push_back(
            zero_pages({blocks, shape_.kv_heads, shape_.head_dim, kBlockTokens}, dtype, device, PageSize::usual));
        values_.push_back(
            zero_pages({blocks, shape_.kv_heads, kBlockTokens, value_dim(shape_)}, dtype, device, PageSize::usual));
    }
}

std::uint64_t KvCache::bytes_per_block(const ModelShape& shape, torch::Dtype dtype) {
    const auto elements = static_cast<std::uint64_t>(shape.layer_count()) * static_cast<std::uint64_t>(shape.kv_heads) *
                          kBlockTokens * static_cast<std::uint64_t>(shape.head_dim + value_dim(shape));
    return elements * torch::elementSize(dtype);
}

void KvCache::prepare(const Batch& batch, KvStep& step) const {
    step.positions = batch.positions;
    step.first_block.resize(batch.tokens.size());
    step.blocks.clear();
    step.last_position = 0;
    for (const BlockId block : batch.blocks) step.blocks.push_back(value_of(block));
    for (const BatchSequence& sequence : batch.sequences) {
        std::fill_n(step.first_block.begin() + sequence.first_row, sequence.rows, sequence.first_block);
    }
    for (const std::int32_t position : step.positions) step.last_position = std::max(step.last_position, position);
    if (kernels_) return;

    step.groups.clear();
    const torch::Device device = keys_.front().device();
    std::vector<std::int64_t> row_blocks;
    std::vector<std::int64_t> row_offsets;
    for (std::size_t row = 0; row < step.positions.size(); ++row) {
        const int position = step.positions[row];
        row_blocks.push_back(step.blocks[static_cast<std::size_t>(step.first_block[row] + position / kBlockTokens)]);
        row_offsets.push_back(position % kBlockTokens);
    }
    step.row_blocks = index_tensor(row_blocks, device);
    step.row_offsets = index_tensor(row_offsets, device);

    std::map<int, std::vector<const BatchSequence*>> by_rows;
    for (const BatchSequence& sequence : batch.sequences) {
        if (sequence.rows > 0) by_rows[sequence.rows].push_back(&sequence);
    }
    for (const auto& [rows, sequences] : by_rows) {
        const auto count = static_cast<std::int64_t>(sequences.size());
        int width = 0;
        for (const BatchSequence* sequence : sequences)
            width = std::max(width, (sequence->context + sequence->rows - 1) / kBlockTokens + 1);
        std::vector<std::int64_t> index;
        std::vector<std::int64_t> positions;
        std::vector<std::int64_t> tables;
        for (const BatchSequence* sequence : sequences) {
            for (int row = sequence->first_row; row < sequence->first_row + rows; ++row) {
                index.push_back(row);
                positions.push_back(step.positions[static_cast<std::size_t>(row)]);
            }
            for (int block = 0; block < width; ++block)
                tables.push_back(block < sequence->blocks
                                     ? step.blocks[static_cast<std::size_t>(sequence->first_block + block)]
                                     : 0);
        }
        step.groups.push_back({index_tensor(index, device), index_tensor(tables, device).view({count, width}),
                               index_tensor(positions, device).view({count, rows})});
    }
}

void KvCache::write(int layer, const torch::Tensor& k, const torch::Tensor& v, const KvStep& step) {
    const auto at = static_cast<std::size_t>(layer);
    if (kernels_) {
        KvWriteCall call;
        call.k = k.const_data_ptr<float>();
        call.k_stride = k.stride(0);
        call.v = v.const_data_ptr<float>();
        call.v_stride = v.stride(0);
        call.kv_heads = shape_.kv_heads;
        call.head_dim = shape_.head_dim;
        call.value_dim = value_dim(shape_);
        call.keys = keys_[at].mutable_data_ptr();
        call.values = values_[at].mutable_data_ptr();
        call.positions = step.positions.data();
        call.first_block = step.first_block.data();
        call.blocks = step.blocks.data();
        const bool bf16 = keys_[at].scalar_type() == torch::kBFloat16;
        const auto run = bf16 ? cpu_kernels().kv_write_bf16 : cpu_kernels().kv_write_f32;
        parallel_for(k.size(0), 8, [&](std::int64_t begin, std::int64_t end) { run(call, begin, end); });
        return;
    }
    const torch::NoGradGuard no_grad;
    const std::vector<std::int64_t> rows{k.size(0), shape_.kv_heads, shape_.head_dim};
    const auto dtype = keys_[at].scalar_type();
    // Indices on both sides of a slice: their dimension comes first, [rows, kv_heads, head_dim].
    keys_[at].index_put_({step.row_blocks, Slice(), Slice(), step.row_offsets}, k.reshape(rows).to(dtype));
    values_[at].index_put_({step.row_blocks, Slice(), step.row_offsets, Slice(0, shape_.head_dim)},
                           v.reshape(rows).to(dtype));
}

void KvCache::write_prefix(std::span<const BlockId> blocks, const PrefixSegment& prefix) {
    // A step of one sequence that holds nothing else.
    Batch batch;
    batch.tokens.assign(static_cast<std::size_t>(prefix.tokens), 0);
    batch.positions.resize(batch.tokens.size());
    std::iota(batch.positions.begin(), batch.positions.end(), 0);
    batch.blocks.assign(blocks.begin(), blocks.end());
    batch.sequences = {{0, prefix.tokens, 0, 0, static_cast<int>(blocks.size())}};
    const KvStep step = prepare(batch);

    const std::int64_t width = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
    const auto rows = static_cast<std::size_t>(prefix.tokens * width);
    const std::size_t values = rows * static_cast<std::size_t>(shape_.layer_count());
    TORCH_CHECK(prefix.keys.size() == values && prefix.values.size() == values, "a prefix of another base's shape");
    TORCH_CHECK(prefix.tokens <= static_cast<int>(blocks.size()) * kBlockTokens, "a prefix without its blocks");
    const torch::NoGradGuard no_grad;
    for (int layer = 0; layer < shape_.layer_count(); ++layer) {
        const auto part = [&](const std::vector<float>& all) {
            // from_blob wants a pointer to non-const; it is only read.
            auto* from = const_cast<float*>(all.data()) + static_cast<std::size_t>(layer) * rows;
            return torch::from_blob(from, {prefix.tokens, width}).to(keys_.front().device());
        };
        write(layer, part(prefix.keys), part(prefix.values), step);
    }
}

torch::Tensor KvCache::attend(int layer, const torch::Tensor& q, const KvStep& step, torch::Tensor out) const {
    if (kernels_) return attend_kernel(layer, q, step, std::move(out));
    out = torch::empty({q.size(0), q.size(1)}, q.options());
    for (const KvStep::Group& group : step.groups) out.index_copy_(0, group.rows, attend_group(layer, q, group));
    return out;
}

torch::Tensor KvCache::attend_kernel(int layer, const torch::Tensor& q, const KvStep& step, torch::Tensor out) const {
    const auto at = static_cast<std::size_t>(layer);
    if (!out.defined()) out = torch::empty({q.size(0), q.size(1)}, q.options());
    AttentionCall call;
    call.q = q.const_data_ptr<float>();
    call.q_stride = q.stride(0);
    call.out = out.mutable_data_ptr<float>();
    call.out_stride = out.stride(0);
    call.heads = shape_.heads;
    call.kv_heads = shape_.kv_heads;
    call.head_dim = shape_.head_dim;
    call.value_dim = value_dim(shape_);
    call.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    call.window = shape_.layers[at].window;
    call.keys = keys_[at].const_data_ptr();
    call.values = values_[at].const_data_ptr();
    call.positions = step.positions.data();
    call.first_block = step.first_block.data();
    call.blocks = step.blocks.data();
    const bool bf16 = keys_[at].scalar_type() == torch::kBFloat16;
    const auto run = dots_ != nullptr ? dots_->attend : bf16 ? cpu_kernels().attend_bf16 : cpu_kernels().attend_f32;
    const std::size_t scratch_size = attention_scratch(step.last_position, shape_.head_dim);
    // From the last row to the first: a prompt's later rows see more, and what is handed out last should be small.
    const std::int64_t items = q.size(0) * shape_.kv_heads;
    parallel_for(items, 4, [&](std::int64_t begin, std::int64_t end) {
        thread_local std::vector<float> scratch;
        if (scratch.size() < scratch_size) scratch.resize(scratch_size);
        run(call, items - end, items - begin, scratch.data());
    });
    return out;
}

torch::Tensor KvCache::attend_group(int layer, const torch::Tensor& q, const KvStep::Group& group) const {
    const auto at = static_cast<std::size_t>(layer);
    const std::int64_t count = group.positions.size(0);
    const std::int64_t rows = group.positions.size(1);
    const std::int64_t width = group.tables.size(1);
    const std::int64_t span = width * kBlockTokens;
    const std::int64_t kv_heads = shape_.kv_heads;
    const std::int64_t per_head = shape_.heads / shape_.kv_heads;
    const std::int64_t dim = shape_.head_dim;

    const torch::Tensor table = group.tables.reshape({-1});
    // [count, kv_heads, dim, span] and [count, kv_heads, span, dim]
    const torch::Tensor keys = keys_[at]
                                   .index_select(0, table)
                                   .to(torch::kFloat32)
                                   .view({count, width, kv_heads, dim, kBlockTokens})
                                   .permute({0, 2, 3, 1, 4})
                                   .reshape({count, kv_heads, dim, span});
    const torch::Tensor values = values_[at]
                                     .index_select(0, table)
                                     .slice(3, 0, dim)
                                     .to(torch::kFloat32)
                                     .view({count, width, kv_heads, kBlockTokens, dim})
                                     .transpose(1, 2)
                                     .reshape({count, kv_heads, span, dim});
    // Positions no row sees may hold anything, even infinities, which a zero weight would turn into NaN.
    const torch::Tensor place = torch::arange(span, group.positions.options());
    const torch::Tensor unseen = place.unsqueeze(0) > group.positions.amax(1, true);  // [count, span]
    torch::Tensor hidden = place > group.positions.unsqueeze(2);                      // [count, rows, span]
    const int window = shape_.layers[at].window;
    if (window > 0) hidden = hidden | (place <= group.positions.unsqueeze(2) - window);

    const torch::Tensor queries = q.index_select(0, group.rows)
                                      .view({count, rows, kv_heads, per_head, dim})
                                      .permute({0, 2, 3, 1, 4})
                                      .reshape({count, kv_heads, per_head * rows, dim});
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    const torch::Tensor scores = (torch::matmul(queries, keys) * scale)
                                     .view({count, kv_heads, per_head, rows, span})
                                     .masked_fill(hidden.view({count, 1, 1, rows, span}), -INFINITY);
    const torch::Tensor weights = torch::softmax(scores, -1).view({count, kv_heads, per_head * rows, span});
    return torch::matmul(weights, values.masked_fill(unseen.view({count, 1, span, 1}), 0))
        .view({count, kv_heads, per_head, rows, dim})
        .permute({0, 3, 1, 2, 4})
        .reshape({count * rows, kv_heads * per_head * dim});
}

void KvCache::copy(std::span<const std::pair<BlockId, BlockId>> pairs) {
    if (pairs.empty()) return;
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    for (const auto& [source, target] : pairs) {
        from.push_back(value_of(source));
        to.push_back(value_of(target));
    }
    const torch::NoGradGuard no_grad;
    const torch::Tensor sources = index_tensor(from, keys_.front().device());
    const torch::Tensor targets = index_tensor(to, keys_.front().device());
    for (auto* tensors : {&keys_, &values_}) {
        for (torch::Tensor& tensor : *tensors) tensor.index_copy_(0, targets, tensor.index_select(0, sources));
    }
}

}  // namespace attune
