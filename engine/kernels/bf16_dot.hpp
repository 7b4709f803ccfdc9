#pragma once

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/lines_ahead.hpp"

#include <cstddef>
#include <cstdint>

namespace attune {

/// Elements of a row of `columns` activations as Bf16DotCall reads it: whole pairs, the last filled up with zero.
constexpr std::ptrdiff_t bf16_row_elements(std::int64_t columns) { return columns + (columns & 1); }

/// Activations rounded to bfloat16, nearest even; subnormals become zero. A row's bits follow from the row alone.
struct Bf16RowsCall {
    const float* x = nullptr;  // [rows, columns]
    std::ptrdiff_t x_stride = 0;
    int columns = 0;
    Bf16* rounded = nullptr;  // [rows, bf16_row_elements(columns)]
};

/// y = x W^T for bfloat16 x and a bfloat16 weight packed as GemmCall's. Two columns are multiplied and added by one
/// instruction into a float32 sum, pair after pair in order (VDPBF16PS: nearest even, subnormals are zero), so an
/// output's bits do not depend on the number of rows nor on the thread that made it.
struct Bf16DotCall {
    const Bf16* x = nullptr;  // as Bf16RowsCall makes it
    float* y = nullptr;       // [rows, panels * kPanelOutputs]
    std::ptrdiff_t y_stride = 0;
    int rows = 0;
    int columns = 0;
    const void* panels = nullptr;
    LinesAhead ahead = {};
};

/// The loops that multiply bfloat16 by bfloat16, beside CpuKernels. Where the processor has them they do twice as many
/// multiply-adds as float32.
struct Bf16DotKernels {
    const char* name;  ///< avx512-bf16

    /// Rows [begin, end).
    void (*round_rows)(const Bf16RowsCall&, std::int64_t begin, std::int64_t end);
    /// Panels [begin, end).
    void (*gemm)(const Bf16DotCall&, std::int64_t begin, std::int64_t end);
    /// CpuKernels::attend_bf16 with queries, and the softmax's weights, rounded to bfloat16.
    void (*attend)(const AttentionCall&, std::int64_t begin, std::int64_t end, float* scratch);
};

/// Null where this machine has no such instructions, or may_use() does not allow them.
const Bf16DotKernels* bf16_dot_kernels();

}  // namespace attune
