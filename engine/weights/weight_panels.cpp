// The mathematics over packed weights: products on the worker pool, and rows read out of panels.

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/quant_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/weights/packing.hpp"
#include "engine/weights/weight.hpp"

#include <algorithm>
#include <vector>

namespace attune {
namespace {

/// Activations in signed bytes, in memory that a thread keeps from one product to the next: a steady step allocates
/// nothing, and no more stays than the widest input of the most rows.
struct QuantInput {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;

    QuantGemmCall quantise(const torch::Tensor& x) {
        const auto groups = static_cast<std::size_t>(x.size(0) * x.size(1) / kQuantGroup);
        if (scales.size() < groups) {
            codes.resize(groups * kQuantGroup);
            scales.resize(groups);
            sums.resize(groups);
        }
        QuantRowsCall rows;
        rows.x = x.const_data_ptr<float>();
        rows.x_stride = x.stride(0);
        rows.groups = static_cast<int>(x.size(1) / kQuantGroup);
        rows.codes = codes.data();
        rows.scales = scales.data();
        rows.sums = sums.data();
        // Fewer than some thousand values are done before a second thread wakes up.
        const std::int64_t grain = std::max<std::int64_t>(1, 16384 / x.size(1));
        parallel_for(x.size(0), grain,
                     [&](std::int64_t begin, std::int64_t end) { quant_kernels().quantise_rows(rows, begin, end); });
        QuantGemmCall call;
        call.codes = rows.codes;
        call.scales = rows.scales;
        call.sums = rows.sums;
        call.rows = static_cast<int>(x.size(0));
        call.groups = rows.groups;
        return call;
    }
};

}  // namespace

torch::Tensor Weight::matmul_panels(const torch::Tensor& input, torch::Tensor y) const {
    TORCH_CHECK(!(torch::GradMode::is_enabled() && input.requires_grad()), "packed weights have no gradients");
    const torch::Tensor x = input.stride(1) == 1 ? input : input.contiguous();
    if (!y.defined()) y = torch::empty({x.size(0), outputs_}, x.options());
    GemmCall call;
    call.x = x.const_data_ptr<float>();
    call.x_stride = x.stride(0);
    call.y = y.mutable_data_ptr<float>();
    call.y_stride = outputs_;
    call.rows = static_cast<int>(x.size(0));
    call.columns = static_cast<int>(columns_);
    call.panels = storage_.const_data_ptr();
    const auto gemm = options_.dtype == torch::kBFloat16 ? cpu_kernels().gemm_bf16 : cpu_kernels().gemm_f32;
    const std::int64_t panels = outputs_ / kPanelOutputs;
    if (!is_quantised()) {
        parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) { gemm(call, begin, end); });
        return y;
    }

    static thread_local QuantInput rows;
    QuantGemmCall quantised = rows.quantise(x);
    quantised.y_stride = outputs_;
    const auto* storage = static_cast<const std::byte*>(storage_.const_data_ptr());
    // Each part in its own form: q, k and v of one file may differ.
    parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const std::int64_t first = parts_[i].first_output / kPanelOutputs;
            const std::int64_t from = std::max(begin, first) - first;
            const std::int64_t to = std::min(end, first + stored_rows(i) / kPanelOutputs) - first;
            if (from >= to) continue;
            float* out = call.y + parts_[i].first_output;
            if (parts_[i].quant == Quant::none) {
                GemmCall own = call;
                own.panels = storage + part_begin(i);
                own.y = out;
                gemm(own, from, to);
            } else {
                QuantGemmCall own = quantised;
                own.panels = storage + part_begin(i);
                own.y = out;
                quant_kernels().gemm(parts_[i].quant)(own, from, to);
            }
        }
    });
    return y;
}

void Weight::read_resident_row(std::size_t part, std::int64_t row, float* into) const {
    const bool packed = options_.layout == WeightLayout::panels;
    const std::byte* from =
        static_cast<const std::byte*>(storage_.const_data_ptr()) +
        (packed ? part_begin(part) : static_cast<std::uint64_t>(parts_[part].first_output + row) * row_bytes(part));
    if (parts_[part].quant != Quant::none) return unpack_row(parts_[part].quant, from, row, columns_, into);
    if (options_.dtype == torch::kBFloat16) {
        const auto* values = reinterpret_cast<const Bf16*>(from);
        if (packed) return unpack_row(values, row, columns_, into);
        std::transform(values, values + columns_, into, [](Bf16 value) { return from_bf16(value); });
    } else {
        const auto* values = reinterpret_cast<const float*>(from);
        if (packed) return unpack_row(values, row, columns_, into);
        std::copy_n(values, columns_, into);
    }
}

}  // namespace attune
