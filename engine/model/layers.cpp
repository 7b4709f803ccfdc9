#include "engine/model/layers.hpp"

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"

#include <algorithm>
#include <cmath>

namespace attune {

namespace {

/// Rows a thread takes at least: fewer than some thousand values are done before a second thread wakes up.
std::int64_t grain(std::int64_t columns) {
    return std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(columns, 1));
}

/// Elements from one row's weight to the next one's: 0 when all rows share it.
std::int64_t weight_stride(const torch::Tensor& weight) { return weight.dim() == 2 ? weight.stride(0) : 0; }

torch::Tensor norm(const torch::Tensor& x, const torch::Tensor& weight, float eps) {
    return x * torch::rsqrt(x.square().mean(-1, true) + eps) * weight;
}

}  // namespace

torch::Tensor LayerMath::add_norm(torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight, float eps,
                                  const torch::Tensor& out) const {
    if (!kernels_) {
        if (delta.defined()) x = x + delta;
        return norm(x, weight, eps);
    }
    const std::int64_t n = x.size(1);
    float* values = x.mutable_data_ptr<float>();
    const float* add = delta.defined() ? delta.const_data_ptr<float>() : nullptr;
    const std::int64_t add_stride = delta.defined() ? delta.stride(0) : 0;
    const float* scale = weight.const_data_ptr<float>();
    const std::int64_t scale_stride = weight_stride(weight);
    float* to = out.mutable_data_ptr<float>();
    const auto run = cpu_kernels().rms_norm;
    parallel_for(x.size(0), grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            run(values + row * n, add == nullptr ? nullptr : add + row * add_stride, scale + row * scale_stride, eps,
                static_cast<int>(n), to + row * n);
    });
    return out;
}

torch::Tensor LayerMath::head_norm(const torch::Tensor& heads, const torch::Tensor& weight, float eps) const {
    const std::int64_t n = weight.size(-1);
    if (!kernels_) {
        const torch::Tensor of_row = weight.dim() == 2 ? weight.unsqueeze(1) : weight;
        return norm(heads.reshape({heads.size(0), -1, n}), of_row, eps).reshape(heads.sizes());
    }
    float* values = heads.mutable_data_ptr<float>();
    const std::int64_t stride = heads.stride(0);
    const std::int64_t count = heads.size(1) / n;
    const float* scale = weight.const_data_ptr<float>();
    const std::int64_t scale_stride = weight_stride(weight);
    const auto run = cpu_kernels().rms_norm;
    parallel_for(heads.size(0), grain(heads.size(1)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t head = 0; head < count; ++head) {
                float* at = values + row * stride + head * n;
                run(at, nullptr, scale + row * scale_stride, eps, static_cast<int>(n), at);
            }
        }
    });
    return heads;
}

torch::Tensor LayerMath::rotate(const torch::Tensor& heads, const torch::Tensor& cos, const torch::Tensor& sin) const {
    const std::int64_t half = cos.size(1);
    if (!kernels_) {
        const torch::Tensor view = heads.reshape({heads.size(0), -1, 2, half});
        const torch::Tensor a = view.select(2, 0);
        const torch::Tensor b = view.select(2, 1);
        const torch::Tensor c = cos.unsqueeze(1);
        const torch::Tensor s = sin.unsqueeze(1);
        return torch::stack({a * c - b * s, b * c + a * s}, 2).reshape(heads.sizes());
    }
    float* values = heads.mutable_data_ptr<float>();
    const std::int64_t stride = heads.stride(0);
    const std::int64_t count = heads.size(1) / (2 * half);
    const float* cosines = cos.const_data_ptr<float>();
    const float* sines = sin.const_data_ptr<float>();
    const auto run = cpu_kernels().rope;
    parallel_for(heads.size(0), grain(heads.size(1)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t head = 0; head < count; ++head)
                run(values + row * stride + head * 2 * half, cosines + row * half, sines + row * half,
                    static_cast<int>(half));
        }
    });
    return heads;
}

namespace {

/// Rows and columns of silu(gate) * up, by the CPU kernels.
struct SiluMul {
    const float* gate;
    const float* up;
    float* out;
    std::int64_t gate_stride, up_stride, out_stride;

    SiluMul(const torch::Tensor& gate_rows, const torch::Tensor& up_rows, const torch::Tensor& out_rows)
        : gate(gate_rows.const_data_ptr<float>()),
          up(up_rows.const_data_ptr<float>()),
          out(out_rows.mutable_data_ptr<float>()),
          gate_stride(gate_rows.stride(0)),
          up_stride(up_rows.stride(0)),
          out_stride(out_rows.stride(0)) {}

    void run(std::int64_t first_row, std::int64_t last_row, std::int64_t first, std::int64_t last) const {
        const auto kernel = cpu_kernels().silu_mul;
        for (std::int64_t row = first_row; row < last_row; ++row)
            kernel(gate + row * gate_stride + first, up + row * up_stride + first, static_cast<int>(last - first),
                   out + row * out_stride + first);
    }
};

}  // namespace

torch::Tensor LayerMath::silu_mul(const torch::Tensor& gate, const torch::Tensor& up, const torch::Tensor& out) const {
    if (!kernels_) return torch::silu(gate) * up;
    const std::int64_t n = gate.size(1);
    const SiluMul product(gate, up, out);
    parallel_for(gate.size(0), grain(n), [&](std::int64_t begin, std::int64_t end) { product.run(begin, end, 0, n); });
    return out;
}

void LayerMath::silu_mul_columns(const torch::Tensor& gate, const torch::Tensor& up, std::int64_t first,
                                 std::int64_t last, const torch::Tensor& out) {
    SiluMul(gate, up, out).run(0, gate.size(0), first, last);
}

torch::Tensor LayerMath::add_bias(const torch::Tensor& y, const torch::Tensor& bias) const {
    if (!kernels_) return y + bias;
    const float* add = bias.const_data_ptr<float>();
    for (std::int64_t row = 0; row < y.size(0); ++row) {
        float* to = y.mutable_data_ptr<float>() + row * y.stride(0);
        for (std::int64_t i = 0; i < y.size(1); ++i) to[i] += add[i];
    }
    return y;
}

torch::Tensor plain_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int head_dim,
                              int window) {
    const std::int64_t rows = q.size(0);
    const std::int64_t past = k.size(0) - rows;
    const std::int64_t heads = q.size(1) / head_dim;
    const std::int64_t kv_heads = k.size(1) / head_dim;
    const torch::Tensor queries = q.reshape({rows, kv_heads, heads / kv_heads, head_dim}).permute({1, 2, 0, 3});
    const torch::Tensor keys = k.reshape({past + rows, kv_heads, head_dim}).permute({1, 2, 0}).unsqueeze(1);
    const torch::Tensor values = v.reshape({past + rows, kv_heads, head_dim}).transpose(0, 1).unsqueeze(1);
    const torch::Tensor place =
        torch::arange(past + rows, torch::TensorOptions().dtype(torch::kInt64).device(q.device()));
    const torch::Tensor own = place.narrow(0, past, rows).unsqueeze(1);
    torch::Tensor hidden = place.unsqueeze(0) > own;
    if (window > 0) hidden = hidden | (place.unsqueeze(0) <= own - window);
    const torch::Tensor scores =
        (torch::matmul(queries, keys) / std::sqrt(static_cast<double>(head_dim))).masked_fill(hidden, -INFINITY);
    // [kv_heads, heads / kv_heads, rows, head_dim] -> rows first
    return torch::matmul(torch::softmax(scores, -1), values).permute({2, 0, 1, 3}).reshape({rows, heads * head_dim});
}

}  // namespace attune
