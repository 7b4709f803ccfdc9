// The hot loops, compiled once per instruction set: each cpu_kernels_<set>.cpp defines ATTUNE_KERNEL_SET (a namespace),
// ATTUNE_KERNEL_ROWS (rows per register block) and ATTUNE_KERNEL_NAME, then includes this file with its own -march.
// Everything lives in an unnamed namespace and nothing from the standard library is instantiated, so that no AVX-512
// copy of a shared inline function can be picked by the linker.

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kv/block_size.hpp"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace attune::ATTUNE_KERNEL_SET {

namespace {

#include "engine/kernels/lanes.hpp"

#include "engine/kernels/exp_lanes.hpp"
#include "engine/kernels/panel_share.hpp"
#include "engine/kernels/row_blocks.hpp"

static_assert(kBlockTokens == kLanes, "one vector holds the scores of one block");
static_assert(kPanelOutputs == 2 * kLanes);

// ---- matrix products

inline void load_panel(const float* from, Floats& low, Floats& high) {
    low = load(from);
    high = load(from + kLanes);
}

/// Outputs i and i + 16 share a word: one load, a shift and a mask widen both.
inline void load_panel(const Bf16* from, Floats& low, Floats& high) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    low = (Floats)(words << 16);
    high = (Floats)(words & 0xffff0000U);
}

/// Columns [begin, end); with `Aside` a line is asked for with each, from `aside` on.
template <int Rows, bool Aside, class Element>
[[gnu::always_inline]] inline void add_columns(const float* x, std::ptrdiff_t x_stride, const Element* panel, int begin,
                                               int end, [[maybe_unused]] const char* aside, Floats (&low)[Rows],
                                               Floats (&high)[Rows]) {
    for (int k = begin; k < end; ++k) {
        Floats w0;
        Floats w1;
        const Element* column = panel + static_cast<std::ptrdiff_t>(k) * kPanelOutputs;
        load_panel(column, w0, w1);
        const char* ahead = reinterpret_cast<const char*>(column) + kPrefetchBytes;
        for (std::size_t line = 0; line < kPanelOutputs * sizeof(Element); line += kCacheLine)
            __builtin_prefetch(ahead + line);
        if constexpr (Aside) {
            __builtin_prefetch(aside, 0, 2);  // not into the first level, where the input is
            aside += kCacheLine;
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const Floats value = splat(x[r * x_stride + k]);
            low[r] += w0 * value;
            high[r] += w1 * value;
        }
    }
}

/// `lines`: how many of the panel's share are asked for meanwhile, if there are as many columns.
template <int Rows, class Element>
[[gnu::noinline]] void gemm_block(const float* x, std::ptrdiff_t x_stride, const Element* panel, int columns, float* y,
                                  std::ptrdiff_t y_stride, PanelShare& share, std::int64_t lines) {
    Floats low[Rows];
    Floats high[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) low[r] = high[r] = Floats{};
    int k = 0;
    for (const int asking = lines < columns ? static_cast<int>(lines) : columns; k < asking;) {
        const char* aside = nullptr;
        const int run = share.take(asking - k, aside);
        add_columns<Rows, true>(x, x_stride, panel, k, k + run, aside, low, high);
        k += run;
    }
    add_columns<Rows, false>(x, x_stride, panel, k, columns, nullptr, low, high);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
        store(y + r * y_stride, low[r]);
        store(y + r * y_stride + kLanes, high[r]);
    }
}

template <class Element>
void gemm(const GemmCall& call, std::int64_t begin, std::int64_t end) {
    const std::ptrdiff_t panel_size = static_cast<std::ptrdiff_t>(call.columns) * kPanelOutputs;
    const auto multiply = [&]<int Rows>(const RowBlock& block, PanelShare& share) {
        gemm_block<Rows>(call.x + block.row * call.x_stride, call.x_stride,
                         static_cast<const Element*>(call.panels) + block.panel * panel_size, call.columns,
                         call.y + block.row * call.y_stride + block.panel * kPanelOutputs, call.y_stride, share,
                         share.part(block.count - block.index));
    };
    multiply_panels<ATTUNE_KERNEL_ROWS>(call.rows, static_cast<std::ptrdiff_t>(sizeof(float)) * call.columns,
                                        call.ahead, begin, end, multiply);
}

// ---- packing

#if defined(__AVX512F__)
/// 16 x 16 words turned in place: blocks of 8, 4, 2 and 1 change places across the diagonal.
template <int Distance>
inline void swap_blocks(Words (&w)[kLanes]) {
    Ints from_low;
    Ints from_high;
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool first = (lane & Distance) == 0;
        from_low[lane] = first ? lane : kLanes + lane - Distance;
        from_high[lane] = first ? lane + Distance : kLanes + lane;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if ((i & Distance) != 0) continue;
        const Words low = w[i];
        const Words high = w[i + Distance];
        w[i] = __builtin_shuffle(low, high, from_low);
        w[i + Distance] = __builtin_shuffle(low, high, from_high);
    }
}

inline void turn(Words (&w)[kLanes]) {
    swap_blocks<8>(w);
    swap_blocks<4>(w);
    swap_blocks<2>(w);
    swap_blocks<1>(w);
}
#else
inline void turn(Words (&w)[kLanes]) {
    std::uint32_t words[kLanes][kLanes];
    __builtin_memcpy(words, w, sizeof words);
    for (int i = 0; i < kLanes; ++i) {
        for (int j = 0; j < i; ++j) {
            const std::uint32_t kept = words[i][j];
            words[i][j] = words[j][i];
            words[j][i] = kept;
        }
    }
    __builtin_memcpy(w, words, sizeof words);
}
#endif

void pack_bf16(const std::uint16_t* rows, int count, int columns, Bf16* panel) {
    const int whole = columns - columns % kLanes;
    for (int k = 0; k < whole; k += kLanes) {
        Words w[kLanes];
        for (int n = 0; n < kLanes; ++n) {
            const std::ptrdiff_t low = static_cast<std::ptrdiff_t>(n) * columns + k;
            w[n] = n < count ? load_words(rows + low) : Words{};
            if (n + kLanes < count)
                w[n] |= load_words(rows + low + static_cast<std::ptrdiff_t>(kLanes) * columns) << 16;
        }
        turn(w);
        __builtin_memcpy(panel + static_cast<std::ptrdiff_t>(k) * kPanelOutputs, w, sizeof w);
    }
    for (int k = whole; k < columns; ++k) {
        for (int n = 0; n < kPanelOutputs; ++n) {
            Bf16 value{0};
            if (n < count) value.bits = rows[static_cast<std::ptrdiff_t>(n) * columns + k];
            panel[static_cast<std::ptrdiff_t>(k) * kPanelOutputs + panel_index(Bf16{}, n)] = value;
        }
    }
}

// ---- changing a weight

inline Ints not_finite(Floats value) {
    constexpr std::uint32_t kExponent = 0x7f800000U;
    return ((Words)value & kExponent) == kExponent;
}

/// -> lanes that are not finite as stored.
inline Ints store_panel(float* to, Floats low, Floats high) {
    store(to, low);
    store(to + kLanes, high);
    return not_finite(low) | not_finite(high);
}

/// Nearest even; a NaN may round to anything, so it is told before.
inline Ints store_panel(Bf16* to, Floats low, Floats high) {
    const Words l = (Words)low + 0x7fffU + (((Words)low >> 16) & 1U);
    const Words h = (Words)high + 0x7fffU + (((Words)high >> 16) & 1U);
    const Words words = (l >> 16) | (h & 0xffff0000U);
    __builtin_memcpy(to, &words, sizeof words);
    return not_finite(low) | not_finite(high) | not_finite((Floats)l) | not_finite((Floats)h);
}

template <int Columns, class Element>
inline Ints change_columns(const ChangeCall& call, int first) {
    Element* at = static_cast<Element*>(call.panel) + static_cast<std::ptrdiff_t>(first) * kPanelOutputs;
    Floats low[Columns];
    Floats high[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) load_panel(at + c * kPanelOutputs, low[c], high[c]);
    if (call.row_gain != nullptr || call.column_gain != nullptr) {
        const Floats g0 = call.row_gain != nullptr ? load(call.row_gain) : Floats{};
        const Floats g1 = call.row_gain != nullptr ? load(call.row_gain + kLanes) : Floats{};
        for (int c = 0; c < Columns; ++c) {
            const Floats own = splat(call.column_gain != nullptr ? call.column_gain[first + c] : 0.0F);
            low[c] += low[c] * (g0 + own);
            high[c] += high[c] * (g1 + own);
        }
    }
    const float* a = call.a + first;
    const float* b = call.b;
    for (int k = 0; k < call.rank; ++k, a += call.columns, b += kPanelOutputs) {
        const Floats b0 = load(b);
        const Floats b1 = load(b + kLanes);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const Floats value = splat(a[c]);
            low[c] += b0 * value;
            high[c] += b1 * value;
        }
    }
    for (int s = 0; s < call.shard_count; ++s) {
        for (int c = 0; c < Columns; ++c) {
            const float* row =
                call.shards[s].b + static_cast<std::ptrdiff_t>((first + c) % call.shards[s].rank) * kPanelOutputs;
            low[c] += load(row);
            high[c] += load(row + kLanes);
        }
    }
    Ints bad{};
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) bad |= store_panel(at + c * kPanelOutputs, low[c], high[c]);
    return bad;
}

template <class Element>
bool change_panel(const ChangeCall& call) {
    constexpr int kColumns = ATTUNE_KERNEL_ROWS >= 4 ? 4 : 1;
    Ints bad{};
    int column = 0;
    for (; column + kColumns <= call.columns; column += kColumns)
        bad |= change_columns<kColumns, Element>(call, column);
    for (; column < call.columns; ++column) bad |= change_columns<1, Element>(call, column);
    for (int i = 0; i < kLanes; ++i)
        if (bad[i] != 0) return false;
    return true;
}

#include "engine/kernels/attention_f32.hpp"

#include "engine/kernels/attention_loops.hpp"
#include "engine/kernels/kv_write_loops.hpp"

// ---- rows

void rms_norm(float* x, const float* delta, const float* weight, float eps, int n, float* out) {
    const int whole = n - n % kLanes;
    Floats squares{};
    for (int i = 0; i < whole; i += kLanes) {
        Floats value = load(x + i);
        if (delta != nullptr) {
            value += load(delta + i);
            store(x + i, value);
        }
        squares += value * value;
    }
    float sum = sum_lanes(squares);
    for (int i = whole; i < n; ++i) {
        if (delta != nullptr) x[i] += delta[i];
        sum += x[i] * x[i];
    }
    const float scale = 1.0F / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) * scale * load(weight + i));
    for (int i = whole; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void rope(float* head, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; ++i) {
        const float a = head[i];
        const float b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = b * cos[i] + a * sin[i];
    }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    const int whole = n - n % kLanes;
    for (int i = 0; i < whole; i += kLanes) {
        const Floats g = load(gate + i);
        store(out + i, g / (exp_lanes(-g) + 1.0F) * load(up + i));
    }
    if (whole == n) return;
    float tail[2][kLanes] = {};
    for (int i = whole; i < n; ++i) {
        tail[0][i - whole] = gate[i];
        tail[1][i - whole] = up[i];
    }
    const Floats g = load(tail[0]);
    store(tail[0], g / (exp_lanes(-g) + 1.0F) * load(tail[1]));
    for (int i = whole; i < n; ++i) out[i] = tail[0][i - whole];
}

}  // namespace

extern const CpuKernels kKernels;
const CpuKernels kKernels{ATTUNE_KERNEL_NAME, gemm<float>,   gemm<Bf16>,   change_panel<float>,
                          change_panel<Bf16>, attend<float>, attend<Bf16>, kv_write<float>,
                          kv_write<Bf16>,     rms_norm,      rope,         silu_mul,
                          pack_bf16};

}  // namespace attune::ATTUNE_KERNEL_SET
