// The mathematics over packed weights: products on the worker pool, and rows read out of panels.

#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/quant_kernels.hpp"
#include "engine/kernels/read_ahead.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/weights/packing.hpp"
#include "engine/weights/weight.hpp"

#include <algorithm>
#include <vector>

namespace attune {
namespace {

/// Fewer than some thousand values are done before a second thread wakes up.
std::int64_t rows_of_some_thousand(std::int64_t columns) { return std::max<std::int64_t>(1, 16384 / columns); }

// Rows from which a product reads ahead. With fewer it is bound by reading its weights, and whatever else is asked for
// gets in their way (measured with as many modules as rows: 4 rows lose a tenth of a step, 8 nothing, 12 win 6 %). The
// faster its arithmetic, the more rows that takes.
constexpr std::int64_t kAskingRows = 12;
constexpr std::int64_t kAskingRowsQuantised = 16;
constexpr std::int64_t kAskingRowsBf16 = 32;

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
        parallel_for(x.size(0), rows_of_some_thousand(x.size(1)),
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

/// Activations rounded to bfloat16, likewise.
struct Bf16Input {
    std::vector<Bf16> rounded;

    Bf16DotCall round(const Bf16DotKernels& kernels, const torch::Tensor& x) {
        const std::int64_t elements = x.size(0) * bf16_row_elements(x.size(1));
        if (rounded.size() < static_cast<std::size_t>(elements)) rounded.resize(static_cast<std::size_t>(elements));
        Bf16RowsCall rows;
        rows.x = x.const_data_ptr<float>();
        rows.x_stride = x.stride(0);
        rows.columns = static_cast<int>(x.size(1));
        rows.rounded = rounded.data();
        parallel_for(x.size(0), rows_of_some_thousand(x.size(1)),
                     [&](std::int64_t begin, std::int64_t end) { kernels.round_rows(rows, begin, end); });
        Bf16DotCall call;
        call.x = rows.rounded;
        call.rows = static_cast<int>(x.size(0));
        call.columns = rows.columns;
        return call;
    }
};

}  // namespace

/// One product as its panels are multiplied: each part in its own form (q, k and v of one file may differ), the input
/// in each form that a part needs.
struct Weight::PanelProduct {
    const Weight& weight;
    GemmCall plain = {};
    QuantGemmCall quantised = {};
    const Bf16DotKernels* dots = nullptr;  // when float32 activations are not asked for
    Bf16DotCall rounded = {};
    LinesAhead ahead = {};

    /// Panels [begin, end) of a part.
    void run(std::size_t part, std::int64_t begin, std::int64_t end) const {
        const auto* panels = static_cast<const std::byte*>(weight.storage_.const_data_ptr()) + weight.part_begin(part);
        const Quant quant = weight.parts_[part].quant;
        float* y = plain.y + weight.parts_[part].first_output;
        const auto with = [&](auto call) {
            call.panels = panels;
            call.y = y;
            call.y_stride = plain.y_stride;
            call.ahead = ahead;
            call.ahead.first_panel = weight.parts_[part].first_output / kPanelOutputs;
            return call;
        };
        if (quant != Quant::none) {
            quant_kernels().gemm(quant)(with(quantised), begin, end);
        } else if (dots != nullptr) {
            dots->gemm(with(rounded), begin, end);
        } else if (weight.options_.dtype == torch::kBFloat16) {
            cpu_kernels().gemm_bf16(with(plain), begin, end);
        } else {
            cpu_kernels().gemm_f32(with(plain), begin, end);
        }
    }
};

torch::Tensor Weight::matmul_panels(const torch::Tensor& input, torch::Tensor y, const Finish* finish,
                                    const ReadAhead* ahead) const {
    TORCH_CHECK(!(torch::GradMode::is_enabled() && input.requires_grad()), "packed weights have no gradients");
    const torch::Tensor x = input.stride(1) == 1 ? input : input.contiguous();
    if (!y.defined()) y = torch::empty({x.size(0), outputs_}, x.options());
    PanelProduct product{*this};
    product.plain.x = x.const_data_ptr<float>();
    product.plain.x_stride = x.stride(0);
    product.plain.y = y.mutable_data_ptr<float>();
    product.plain.y_stride = outputs_;
    product.plain.rows = static_cast<int>(x.size(0));
    product.plain.columns = static_cast<int>(columns_);
    if (is_quantised()) {
        static thread_local QuantInput input_codes;
        product.quantised = input_codes.quantise(x);
    }
    if (options_.dtype == torch::kBFloat16 && options_.bf16_activations && holds_full_part()) {
        static thread_local Bf16Input rounded_input;
        product.dots = bf16_dot_kernels();
        TORCH_CHECK(product.dots != nullptr, "this machine has no bfloat16 products");
        product.rounded = rounded_input.round(*product.dots, x);
    }
    const std::int64_t asking_rows = product.dots != nullptr ? kAskingRowsBf16
                                     : is_quantised()        ? kAskingRowsQuantised
                                                             : kAskingRows;
    if (ahead != nullptr && x.size(0) >= asking_rows) product.ahead = ahead->over(outputs_ / kPanelOutputs);
    if (finish != nullptr) {
        parallel_for(stored_rows(0) / kPanelOutputs, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::size_t part = 0; part < parts_.size(); ++part) product.run(part, begin, end);
            (*finish)(begin * kPanelOutputs, std::min(end * kPanelOutputs, parts_.front().rows));
        });
        return y;
    }
    parallel_for(outputs_ / kPanelOutputs, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::int64_t first = parts_[part].first_output / kPanelOutputs;
            const std::int64_t from = std::max(begin, first) - first;
            const std::int64_t to = std::min(end, first + stored_rows(part) / kPanelOutputs) - first;
            if (from < to) product.run(part, from, to);
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
