#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace attune {

/// The small mathematics between the matrix products, all in float32. On the CPU kernels operations write into `out`
/// where there is one, else into their first argument, and that is the result; on libtorch `out` is left alone, nothing
/// is written and everything has gradients.
class LayerMath {
public:
    explicit LayerMath(bool kernels) : kernels_(kernels) {}

    /// x = x + delta (when defined), then x / sqrt(mean(x^2) + eps) * weight over each row.
    /// x, delta: [rows, n], weight: [n] or one per row, [rows, n] -> [rows, n].
    torch::Tensor add_norm(torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight, float eps,
                           const torch::Tensor& out) const;

    /// RMSNorm over each head. heads: [rows, heads * n], row-strided, weight: [n] or [rows, n].
    torch::Tensor head_norm(const torch::Tensor& heads, const torch::Tensor& weight, float eps) const;

    /// Rotates each head. heads: [rows, heads * head_dim], row-strided; cos, sin: [rows, head_dim / 2].
    torch::Tensor rotate(const torch::Tensor& heads, const torch::Tensor& cos, const torch::Tensor& sin) const;

    /// silu(gate) * up. Both [rows, n], row-strided -> [rows, n].
    torch::Tensor silu_mul(const torch::Tensor& gate, const torch::Tensor& up, const torch::Tensor& out) const;

    /// The same for columns [first, last) on the calling thread, with the CPU kernels.
    static void silu_mul_columns(const torch::Tensor& gate, const torch::Tensor& up, std::int64_t first,
                                 std::int64_t last, const torch::Tensor& out);

    /// y + bias. y: [rows, n], row-strided, bias: [n].
    torch::Tensor add_bias(const torch::Tensor& y, const torch::Tensor& bias) const;

private:
    bool kernels_;
};

/// Causal attention of one whole sequence without a cache. q: [rows, heads * head_dim], k, v: [past + rows, kv_heads *
/// head_dim] from position 0, where `past` is a prefix -> [rows, heads * head_dim]. window 0: full.
torch::Tensor plain_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int head_dim,
                              int window);

}  // namespace attune
