// The loops of bf16_dot.hpp with AVX512-BF16. As in the other files that are compiled for one instruction set, nothing
// shared is instantiated outside of the unnamed namespace.

#include "engine/kernels/bf16_dot.hpp"

#if defined(__AVX512BF16__)

#include "engine/kv/block_size.hpp"

#include <immintrin.h>

namespace attune::bf16_dot_avx512 {

namespace {

#include "engine/kernels/lanes.hpp"

#include "engine/kernels/exp_lanes.hpp"
#include "engine/kernels/panel_share.hpp"
#include "engine/kernels/row_blocks.hpp"

static_assert(kPanelOutputs == 2 * kLanes && kBlockTokens == kLanes);

// Rows per register block: two sums a row, two vectors of weights and one of a row's values fill the registers.
#define ATTUNE_KERNEL_ROWS 14

#include "engine/kernels/attention_bf16.hpp"

#include "engine/kernels/attention_loops.hpp"

// ---- activations

void round_rows(const Bf16RowsCall& call, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
        const float* x = call.x + row * call.x_stride;
        Bf16* to = call.rounded + row * bf16_row_elements(call.columns);
        for (int k = 0; k < call.columns; k += kLanes) {
            const int left = call.columns - k;
            // An odd last column is stored with the zero that follows it.
            const auto some = static_cast<__mmask16>(left >= kLanes ? 0xffffU : (1U << left) - 1U);
            const auto pairs = static_cast<__mmask16>(left >= kLanes ? 0xffffU : (1U << (left + left % 2)) - 1U);
            const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + k));
            _mm256_mask_storeu_epi16(to + k, pairs, (__m256i)rounded);
        }
    }
}

// ---- matrix products

/// Columns k and k + 1 of a panel. A word of a column holds outputs i and i + 16; `low` and `high` have both columns of
/// one output in a word.
inline void pair_columns(__m512i first, __m512i second, __m512bh& low, __m512bh& high) {
    constexpr __mmask32 kUpperHalves = 0xaaaaaaaaU;
    low = (__m512bh)_mm512_mask_mov_epi16(first, kUpperHalves, _mm512_slli_epi32(second, 16));
    high = (__m512bh)_mm512_mask_mov_epi16(_mm512_srli_epi32(first, 16), kUpperHalves, second);
}

/// Where a block of rows asks for weights, and how many bytes further with each pair of columns.
struct Asking {
    const char* at;
    std::ptrdiff_t step;
};

constexpr std::ptrdiff_t kPairBytes = 2 * kPanelOutputs * static_cast<std::ptrdiff_t>(sizeof(Bf16));
// Two panels have to stay in the second-level cache.
constexpr std::ptrdiff_t kMostSharedBytes = 160 << 10;

/// One block alone is too fast for the memory to bring a panel, while the others that go through it ask for nothing: so
/// each of them asks for its part of the next panel. The first panel, which nobody has asked for, is its first block's.
inline Asking asking(const Bf16* panel, std::ptrdiff_t bytes, bool is_first, const RowBlock& block) {
    const char* own = reinterpret_cast<const char*>(panel);
    const std::ptrdiff_t parts = is_first ? block.count - 1 : block.count;
    const std::ptrdiff_t part = is_first ? block.index - 1 : block.index;
    if (block.count == 1 || part < 0 || bytes > kMostSharedBytes) return {own + kPrefetchBytes, kPairBytes};
    return {own + bytes + part * (bytes / parts), kPairBytes / parts};
}

/// `lines`: how many of the panel's share are asked for meanwhile, if there are as many columns.
template <int Rows>
[[gnu::noinline]] void gemm_block(const Bf16* x, std::ptrdiff_t x_stride, const Bf16* panel, int columns, float* y,
                                  std::ptrdiff_t y_stride, PanelShare& share, std::int64_t lines, Asking ahead) {
    __m512 low[Rows];
    __m512 high[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) low[r] = high[r] = _mm512_setzero_ps();
    const auto add = [&](int k, __m512i first, __m512i second) __attribute__((always_inline)) {
        __m512bh w0;
        __m512bh w1;
        pair_columns(first, second, w0, w1);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            std::int32_t pair;
            __builtin_memcpy(&pair, x + r * x_stride + k, sizeof pair);
            const auto value = (__m512bh)_mm512_set1_epi32(pair);
            low[r] = _mm512_dpbf16_ps(low[r], value, w0);
            high[r] = _mm512_dpbf16_ps(high[r], value, w1);
        }
    };
    int k = 0;
    const auto add_pair = [&]() __attribute__((always_inline)) {
        __builtin_prefetch(ahead.at);
        __builtin_prefetch(ahead.at + kCacheLine);
        ahead.at += ahead.step;
        add(k, _mm512_loadu_si512(panel), _mm512_loadu_si512(panel + kPanelOutputs));
        k += 2;
        panel += 2 * kPanelOutputs;
    };
    const int pairs_end = columns - columns % 2;
    for (const int sharing = lines < pairs_end ? static_cast<int>(lines) : pairs_end; k < sharing;) {
        const char* aside = nullptr;
        // A pair asks for two lines; where they lie together in an odd number the last one is none of ours.
        for (const int end = k + share.take(sharing - k, aside); k < end; aside += 2 * kCacheLine) {
            __builtin_prefetch(aside, 0, 2);
            __builtin_prefetch(aside + kCacheLine, 0, 2);
            add_pair();
        }
    }
    while (k < pairs_end) add_pair();
    if (k < columns) add(k, _mm512_loadu_si512(panel), _mm512_setzero_si512());
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
        _mm512_storeu_ps(y + r * y_stride, low[r]);
        _mm512_storeu_ps(y + r * y_stride + kLanes, high[r]);
    }
}

void gemm(const Bf16DotCall& call, std::int64_t begin, std::int64_t end) {
    constexpr auto kBytes = static_cast<std::ptrdiff_t>(sizeof(Bf16));
    const std::ptrdiff_t x_stride = bf16_row_elements(call.columns);
    const std::ptrdiff_t panel_size = static_cast<std::ptrdiff_t>(call.columns) * kPanelOutputs;
    const auto multiply = [&]<int Rows>(const RowBlock& block, PanelShare& share) {
        const Bf16* panel = static_cast<const Bf16*>(call.panels) + block.panel * panel_size;
        gemm_block<Rows>(call.x + block.row * x_stride, x_stride, panel, call.columns,
                         call.y + block.row * call.y_stride + block.panel * kPanelOutputs, call.y_stride, share,
                         share.part(block.count - block.index),
                         asking(panel, kBytes * panel_size, block.panel == begin, block));
    };
    multiply_panels<ATTUNE_KERNEL_ROWS>(call.rows, kBytes * x_stride, call.ahead, begin, end, multiply);
}

}  // namespace

extern const Bf16DotKernels kKernels;
const Bf16DotKernels kKernels{"avx512-bf16", round_rows, gemm, attend<Bf16>};

}  // namespace attune::bf16_dot_avx512

#endif
