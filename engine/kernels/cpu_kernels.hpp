#pragma once

#include "engine/kernels/bf16.hpp"
#include "engine/kernels/lines_ahead.hpp"

#include <cstddef>
#include <cstdint>

namespace attune {

/// Outputs per panel of a packed weight: two vectors of 16 floats, so that 12 rows fill the AVX-512 registers.
inline constexpr int kPanelOutputs = 32;

/// Where output n of a panel lies within one column's kPanelOutputs elements. Bfloat16 pairs n and n + 16 in one word,
/// so that widening takes a shift and a mask.
constexpr int panel_index(float, int n) { return n; }
constexpr int panel_index(Bf16, int n) { return 2 * (n % 16) + n / 16; }

/// y = x W^T for a weight packed as [panels][columns][kPanelOutputs]. Each output is one chain of fused multiply-adds
/// over the columns in order, so its bits do not depend on the number of rows nor on the thread that made it.
struct GemmCall {
    const float* x = nullptr;  // [rows, columns]
    std::ptrdiff_t x_stride = 0;
    float* y = nullptr;  // [rows, panels * kPanelOutputs]
    std::ptrdiff_t y_stride = 0;
    int rows = 0;
    int columns = 0;
    const void* panels = nullptr;
    LinesAhead ahead = {};
};

/// One panel of a packed weight, changed in place: W (1 + gains) + sum of b a, in float32, rounded once.
struct ChangeCall {
    void* panel = nullptr;  // [columns][kPanelOutputs]
    int columns = 0;
    int rank = 0;
    const float* a = nullptr;            // [rank, columns]
    const float* b = nullptr;            // [rank][kPanelOutputs], outputs in plain order
    const float* row_gain = nullptr;     // [kPanelOutputs] or null
    const float* column_gain = nullptr;  // [columns] or null
    /// Column c gains row c mod rank.
    struct Shards {
        const float* b = nullptr;  // [rank][kPanelOutputs]
        int rank = 1;
    };
    const Shards* shards = nullptr;
    int shard_count = 0;
};

/// Causal attention of single query rows over a paged cache. Strides count elements.
struct AttentionCall {
    const float* q = nullptr;  // [rows, heads, head_dim], heads contiguous
    std::ptrdiff_t q_stride = 0;
    float* out = nullptr;  // [rows, heads * head_dim]
    std::ptrdiff_t out_stride = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int value_dim = 0;  ///< head_dim rounded up to 16; the padding holds zeros
    float scale = 1.0F;
    int window = 0;  ///< 0: everything before the row is visible

    const void* keys = nullptr;    // [blocks][kv_heads][head_dim][kBlockTokens]
    const void* values = nullptr;  // [blocks][kv_heads][kBlockTokens][value_dim]

    const std::int32_t* positions = nullptr;    // [rows]; a row sees cache positions 0..position
    const std::int32_t* first_block = nullptr;  // [rows]; where the row's table begins in `blocks`
    const std::int32_t* blocks = nullptr;       // block tables
};

/// One row of the step into the cache.
struct KvWriteCall {
    const float* k = nullptr;  // [rows, kv_heads, head_dim]
    std::ptrdiff_t k_stride = 0;
    const float* v = nullptr;
    std::ptrdiff_t v_stride = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int value_dim = 0;
    void* keys = nullptr;
    void* values = nullptr;
    const std::int32_t* positions = nullptr;
    const std::int32_t* first_block = nullptr;
    const std::int32_t* blocks = nullptr;
};

/// The hot loops in one instruction set. Every function does its share [begin, end) on the calling thread; the caller
/// splits the work. `Weight` element types: float or Bf16.
struct CpuKernels {
    const char* name;  ///< x86-64-v4, x86-64-v3, baseline

    /// Panels [begin, end).
    void (*gemm_f32)(const GemmCall&, std::int64_t begin, std::int64_t end);
    void (*gemm_bf16)(const GemmCall&, std::int64_t begin, std::int64_t end);

    /// False when a value that was stored is not finite.
    bool (*change_f32)(const ChangeCall&);
    bool (*change_bf16)(const ChangeCall&);

    /// Items [begin, end) of rows * kv_heads; `scratch` holds attention_scratch() floats.
    void (*attend_f32)(const AttentionCall&, std::int64_t begin, std::int64_t end, float* scratch);
    void (*attend_bf16)(const AttentionCall&, std::int64_t begin, std::int64_t end, float* scratch);

    /// Rows [begin, end).
    void (*kv_write_f32)(const KvWriteCall&, std::int64_t begin, std::int64_t end);
    void (*kv_write_bf16)(const KvWriteCall&, std::int64_t begin, std::int64_t end);

    /// out = x / sqrt(mean(x^2) + eps) * weight over `n` values; with `delta`, x += delta first.
    void (*rms_norm)(float* x, const float* delta, const float* weight, float eps, int n, float* out);
    /// Rotates one head in place: halves (a, b) become (a cos - b sin, b cos + a sin); cos and sin hold half values.
    void (*rope)(float* head, const float* cos, const float* sin, int half);
    /// out = gate / (1 + exp(-gate)) * up.
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);

    /// One panel of up to kPanelOutputs rows, [count, columns] bfloat16, bits as they are; missing rows become zeros.
    void (*pack_bf16)(const std::uint16_t* rows, int count, int columns, Bf16* panel);
};

/// Queries (rows of one prompt times heads) that attend handles together at most; each needs a row of scores.
inline constexpr int kMostTileQueries = 8;

/// Floats of scratch that attend needs for rows up to `position`.
std::size_t attention_scratch(int position, int head_dim);

/// The best set that may_use() allows.
const CpuKernels& cpu_kernels();

/// One set by name, for tests that compare them; null when this machine cannot run it.
const CpuKernels* cpu_kernels(const char* name);

/// Nearest even; NaN stays NaN.
Bf16 to_bf16(float value);
float from_bf16(Bf16 value);

}  // namespace attune
