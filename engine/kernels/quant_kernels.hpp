#pragma once

#include "engine/kernels/cpu_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace attune {

/// Columns of a weight, and values of an activation row, that share a scale.
inline constexpr int kQuantGroup = 32;

/// How a matrix is held in fewer bits. A weight is scale * (code - zero_code), with int4_min scale * code + minimum;
/// codes are unsigned, scale and minimum are float16, one of each per output and kQuantGroup columns.
enum class Quant : std::uint8_t {
    none,      ///< float32 or bfloat16
    int8,      ///< 8.5 bits a weight; what Q8_0 holds
    int4,      ///< 4.5 bits; what Q4_0 holds
    int4_min,  ///< 5 bits; what Q4_1 and Q4_K hold
};

constexpr int code_bits(Quant quant) { return quant == Quant::int8 ? 8 : 4; }
constexpr int zero_code(Quant quant) { return quant == Quant::int8 ? 128 : quant == Quant::int4 ? 8 : 0; }

// A panel of kPanelOutputs outputs is a run of groups; a group is its scales, its minima (int4_min), and its codes,
// four columns at a time: with 8 bits output n's four lie at 4 n, with 4 bits output n + 16 has the upper halves of the
// bytes of output n. So one load of 64 bytes feeds the dot products of 16 outputs, or of all 32.
constexpr std::size_t group_scale_bytes(Quant quant) {
    return static_cast<std::size_t>(kPanelOutputs) * 2 * (quant == Quant::int4_min ? 2 : 1);
}
constexpr std::size_t group_bytes(Quant quant) {
    return group_scale_bytes(quant) + static_cast<std::size_t>(kPanelOutputs * kQuantGroup * code_bits(quant) / 8);
}

/// Activations as signed bytes: value = scale * code, |code| <= 127, nearest even. A row's codes follow from the row
/// alone. A group that holds a value that is not finite has scale NaN, so that the row's outputs show it.
struct QuantRowsCall {
    const float* x = nullptr;  // [rows, groups * kQuantGroup]
    std::ptrdiff_t x_stride = 0;
    int groups = 0;
    std::int8_t* codes = nullptr;  // [rows, groups * kQuantGroup]
    float* scales = nullptr;       // [rows, groups]
    std::int32_t* sums = nullptr;  // [rows, groups], of the codes
};

/// y = x W^T. Within a group integers are multiplied and added, which is exact; groups are added in order as float32,
/// every product rounded. So an output has the same bits in every instruction set, whatever rows stand beside its own.
struct QuantGemmCall {
    const std::int8_t* codes = nullptr;  // as QuantRowsCall makes them
    const float* scales = nullptr;
    const std::int32_t* sums = nullptr;
    float* y = nullptr;  // [rows, panels * kPanelOutputs]
    std::ptrdiff_t y_stride = 0;
    int rows = 0;
    int groups = 0;
    const void* panels = nullptr;  // [panels][groups][group_bytes]
    LinesAhead ahead = {};
};

/// The loops over quantised weights in one instruction set, beside CpuKernels.
struct QuantKernels {
    const char* name;  ///< avx512-vnni, avx-vnni, x86-64-v3, baseline

    /// Rows [begin, end).
    void (*quantise_rows)(const QuantRowsCall&, std::int64_t begin, std::int64_t end);
    /// Panels [begin, end).
    void (*gemm_int8)(const QuantGemmCall&, std::int64_t begin, std::int64_t end);
    void (*gemm_int4)(const QuantGemmCall&, std::int64_t begin, std::int64_t end);
    void (*gemm_int4_min)(const QuantGemmCall&, std::int64_t begin, std::int64_t end);

    auto gemm(Quant quant) const {
        return quant == Quant::int8 ? gemm_int8 : quant == Quant::int4 ? gemm_int4 : gemm_int4_min;
    }
};

/// The best set that may_use() allows.
const QuantKernels& quant_kernels();

/// One set by name; null when this machine cannot run it.
const QuantKernels* quant_kernels(const char* name);

}  // namespace attune
