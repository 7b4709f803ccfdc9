#pragma once

#include "engine/kernels/read_ahead.hpp"
#include "engine/kv/kv_cache.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/weights/row_buffer.hpp"
#include "engine/weights/weight.hpp"

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <vector>

namespace attune {

/// Where the operations of a step write on the CPU's kernels: kept, so that a step with as many rows as the one before
/// makes no tensor. Undefined on libtorch, where each operation makes its own result.
class StepBuffers {
public:
    /// A product and the columns of the projections in it.
    struct Product {
        torch::Tensor whole;                // [rows, outputs()]
        std::array<torch::Tensor, 3> part;  // [rows, out_features], views
    };

    /// Makes the tensors of a step with so many rows. The weights give the products' columns; they are the same in
    /// every layer.
    void fit(std::int64_t rows, const ModelShape& shape, const Weight& qkv, const Weight& o, const Weight& gate_up,
             const Weight& down);

    torch::Tensor x, normed;  // [rows, hidden]
    torch::Tensor cos, sin;   // [rows, head_dim / 2]
    torch::Tensor mixed;      // [rows, heads * head_dim]
    torch::Tensor inner;      // [rows, intermediate]
    Product qkv, o, gate_up, down;
    KvStep kv;
    ReadAhead ahead;                   // of the product under way
    std::vector<std::int32_t> tokens;  // [rows]
    RowBuffer hidden, logits, padded_logits;

private:
    std::int64_t rows_ = 0;
    RowBuffer x_, normed_, cos_, sin_;
    RowBuffer wide_;   // qkv and gate_up: one is used up before the other is made
    RowBuffer inner_;  // mixed and inner, likewise
    RowBuffer delta_;  // o and down, likewise
};

}  // namespace attune
