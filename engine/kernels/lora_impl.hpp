// The LoRA loops, compiled once per instruction set: each lora_<set>.cpp defines ATTUNE_KERNEL_SET (a namespace) and
// ATTUNE_KERNEL_NAME, then includes this file with its own -march. Everything lives in an unnamed namespace and nothing
// from the standard library is instantiated, so that no AVX-512 copy of a shared inline function can be picked by the
// linker.

#include "engine/kernels/lora.hpp"

#include "engine/kernels/bf16.hpp"
#include "engine/kernels/cache_line.hpp"

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace attune::ATTUNE_KERNEL_SET {

namespace {

#include "engine/kernels/lanes.hpp"

static_assert(kLoraPanelOutputs == kLanes);

/// The first `count` elements, then zeros.
template <class Element>
inline Floats load_part(const Element* from, int count) {
    Element part[kLanes] = {};
    for (int i = 0; i < count; ++i) part[i] = from[i];
    return load(part);
}

/// a b + c, fused where the set can. Written out: left to the compiler, the fusing depends on what surrounds it, and
/// the bits of a row on how many rows share the loop.
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    __m256 parts[3][2];
    __builtin_memcpy(parts[0], &a, sizeof a);
    __builtin_memcpy(parts[1], &b, sizeof b);
    __builtin_memcpy(parts[2], &c, sizeof c);
    for (int i = 0; i < 2; ++i) parts[2][i] = _mm256_fmadd_ps(parts[0][i], parts[1][i], parts[2][i]);
    __builtin_memcpy(&c, parts[2], sizeof c);
    return c;
#else
    return a * b + c;
#endif
}

// Blocks as large as the registers hold. A step with few rows is bound by reading A and B once: the next block is asked
// for while this one is summed, beyond A's end that is B, beyond B's end most often the module's next projection. Lines
// are asked for as they lie, not as the block's ranks or panels take them in turns: memory answers faster.
#if defined(__AVX512F__)
constexpr int kShrinkRows = 4;
constexpr int kShrinkRanks = 4;
constexpr int kExpandRows = 8;
constexpr int kExpandPanels = 2;
#else
constexpr int kShrinkRows = 2;
constexpr int kShrinkRanks = 2;
constexpr int kExpandRows = 4;
constexpr int kExpandPanels = 1;
#endif
constexpr std::ptrdiff_t kPrefetchBytes = 8192;

/// t = x A^T for `Rows` rows and `Ranks` ranks.
template <int Rows, int Ranks, class Element>
inline void shrink_block(const float* const* x, const Element* a, int in, float* t, std::ptrdiff_t t_stride) {
    constexpr int kPerLine = 64 / (kLanes * static_cast<int>(sizeof(Element)));
    Floats sums[Rows][Ranks];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < Ranks; ++j) sums[r][j] = Floats{};
    }
    const char* ahead = reinterpret_cast<const char*>(a) + kPrefetchBytes;
    const int whole = in - in % kLanes;
    for (int k = 0; k < whole; k += kLanes) {
        Floats columns[Ranks];
#pragma GCC unroll 4
        for (int j = 0; j < Ranks; ++j) {
            if (j % kPerLine == 0) {
                __builtin_prefetch(ahead);
                ahead += kCacheLine;
            }
            columns[j] = load(a + static_cast<std::ptrdiff_t>(j) * in + k);
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
            const Floats value = load(x[r] + k);
#pragma GCC unroll 4
            for (int j = 0; j < Ranks; ++j) sums[r][j] = multiply_add(columns[j], value, sums[r][j]);
        }
    }
    if (whole < in) {
        for (int r = 0; r < Rows; ++r) {
            const Floats value = load_part(x[r] + whole, in - whole);
            for (int j = 0; j < Ranks; ++j) {
                const Floats column = load_part(a + static_cast<std::ptrdiff_t>(j) * in + whole, in - whole);
                sums[r][j] = multiply_add(column, value, sums[r][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < Ranks; ++j) t[r * t_stride + j] = sum_lanes(sums[r][j]);
    }
}

template <int Rows, class Element>
inline void shrink_rows(const float* const* x, const Element* a, int in, int rank, float* t) {
    int j = 0;
    for (; j + kShrinkRanks <= rank; j += kShrinkRanks)
        shrink_block<Rows, kShrinkRanks>(x, a + static_cast<std::ptrdiff_t>(j) * in, in, t + j, rank);
    for (; j < rank; ++j) shrink_block<Rows, 1>(x, a + static_cast<std::ptrdiff_t>(j) * in, in, t + j, rank);
}

/// t[k] = x[k] + x[k + rank] + ..., in this order. Nothing to read but x.
void sum_shards(const LoraCall& call, float* t) {
    for (int i = 0; i < call.count; ++i, t += call.rank) {
        const float* x = call.x + call.rows[i] * call.x_stride;
        for (int k = 0; k < call.rank; k += kLanes) {
            const int lanes = call.rank - k < kLanes ? call.rank - k : kLanes;
            Floats sum{};
            int at = k;
            for (; lanes == kLanes && at + kLanes <= call.in; at += call.rank) sum += load(x + at);
            for (; at < call.in; at += call.rank) sum += load_part(x + at, call.in - at < lanes ? call.in - at : lanes);
            if (lanes == kLanes) {
                store(t + k, sum);
            } else {
                float part[kLanes];
                store(part, sum);
                for (int j = 0; j < lanes; ++j) t[k + j] = part[j];
            }
        }
    }
}

template <class Element>
void shrink(const LoraCall& call, float* t) {
    if (call.a == nullptr) return sum_shards(call, t);
    const Element* a = static_cast<const Element*>(call.a);
    for (int first = 0; first < call.count; first += kShrinkRows) {
        const int rows = call.count - first < kShrinkRows ? call.count - first : kShrinkRows;
        const float* x[kShrinkRows] = {};
        for (int r = 0; r < rows; ++r) x[r] = call.x + call.rows[first + r] * call.x_stride;
        float* to = t + static_cast<std::ptrdiff_t>(first) * call.rank;
        if (rows == 4) {
            shrink_rows<4>(x, a, call.in, call.rank, to);
        } else if (rows == 3) {
            shrink_rows<3>(x, a, call.in, call.rank, to);
        } else if (rows == 2) {
            shrink_rows<2>(x, a, call.in, call.rank, to);
        } else {
            shrink_rows<1>(x, a, call.in, call.rank, to);
        }
    }
}

/// `Panels` panels of outputs for `Rows` rows; the last panel of all may be cut short.
template <int Rows, int Panels, bool Whole, class Element>
inline void expand_block(const LoraCall& call, int first, const float* t, const Element* panel, int output) {
    const std::ptrdiff_t panel_size = static_cast<std::ptrdiff_t>(call.rank) * kLanes;
    constexpr int kPerLine = 64 / (kLanes * static_cast<int>(sizeof(Element)));
    Floats sums[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (int p = 0; p < Panels; ++p) sums[r][p] = Floats{};
    }
    const char* ahead = reinterpret_cast<const char*>(panel) + kPrefetchBytes;
    for (int j = 0; j < call.rank; ++j) {
        Floats columns[Panels];
#pragma GCC unroll 2
        for (int p = 0; p < Panels; ++p) {
            if (p % kPerLine == 0) {
                __builtin_prefetch(ahead);
                ahead += kCacheLine;
            }
            columns[p] = load(panel + p * panel_size + static_cast<std::ptrdiff_t>(j) * kLanes);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Floats value = splat(t[static_cast<std::ptrdiff_t>(first + r) * call.rank + j]);
#pragma GCC unroll 2
            for (int p = 0; p < Panels; ++p) sums[r][p] = multiply_add(columns[p], value, sums[r][p]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        float* y = call.y + call.rows[first + r] * call.y_stride + output;
        const Floats scale = splat(call.weights[first + r] * call.scale);
#pragma GCC unroll 2
        for (int p = 0; p < Panels; ++p) {
            if constexpr (Whole) {
                store(y + p * kLanes, multiply_add(sums[r][p], scale, load(y + p * kLanes)));
            } else {
                const int outputs = call.out - output;
                float lanes[kLanes];
                store(lanes, multiply_add(sums[r][p], scale, load_part(y, outputs)));
                for (int i = 0; i < outputs; ++i) y[i] = lanes[i];
            }
        }
    }
}

template <int Panels, bool Whole, class Element>
inline void expand_panels(const LoraCall& call, const float* t, const Element* panel, int output) {
    int first = 0;
    for (; first + kExpandRows <= call.count; first += kExpandRows)
        expand_block<kExpandRows, Panels, Whole>(call, first, t, panel, output);
    for (; first + 4 <= call.count; first += 4) expand_block<4, Panels, Whole>(call, first, t, panel, output);
    for (; first < call.count; ++first) expand_block<1, Panels, Whole>(call, first, t, panel, output);
}

template <class Element>
void expand(const LoraCall& call, const float* t) {
    const Element* panel = static_cast<const Element*>(call.b);
    const std::ptrdiff_t panel_size = static_cast<std::ptrdiff_t>(call.rank) * kLanes;
    int output = 0;
    for (; output + kExpandPanels * kLanes <= call.out;
         output += kExpandPanels * kLanes, panel += kExpandPanels * panel_size)
        expand_panels<kExpandPanels, true>(call, t, panel, output);
    for (; output + kLanes <= call.out; output += kLanes, panel += panel_size)
        expand_panels<1, true>(call, t, panel, output);
    if (output < call.out) expand_panels<1, false>(call, t, panel, output);
}

template <class Element>
void apply(const LoraCall& call, float* scratch) {
    shrink<Element>(call, scratch);
    expand<Element>(call, scratch);
}

/// Products before sums, unfused: what the same terms give in plain C++.
void add_gain(float* y, const float* gain, float weight, const float* base, const float* bias, int n) {
    const int whole = n - n % kLanes;
    for (int i = 0; i < whole; i += kLanes) {
        Floats value = load(base + i);
        if (bias != nullptr) value += load(bias + i);
        store(y + i, load(y + i) + splat(weight) * load(gain + i) * value);
    }
    for (int i = whole; i < n; ++i) {
        const float value = bias == nullptr ? base[i] : base[i] + bias[i];
        y[i] += weight * gain[i] * value;
    }
}

/// e^x within 2 ulp on [-87, 88]; inputs are clamped to it. Cephes' reduction and polynomial.
inline Floats exp_lanes(Floats x) {
    x = x < splat(-87.0F) ? splat(-87.0F) : x;
    x = x > splat(88.0F) ? splat(88.0F) : x;
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const Floats magic = splat(12582912.0F);
    const Floats n = (x * 1.44269504F + magic) - magic;
    const Floats r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
    Floats p = multiply_add(splat(1.9875691500e-4F), r, splat(1.3981999507e-3F));
    p = multiply_add(p, r, splat(8.3334519073e-3F));
    p = multiply_add(p, r, splat(4.1665795894e-2F));
    p = multiply_add(p, r, splat(1.6666665459e-1F));
    p = multiply_add(p, r, splat(5.0000001201e-1F));
    p = p * (r * r) + r + 1.0F;
    const Words exponent = (Words)((__builtin_convertvector(n, Ints) + 127) << 23);
    return p * (Floats)exponent;
}

/// Cephes: a polynomial near zero, beyond it 1 - 2 / (e^2x + 1).
inline Floats tanh_lanes(Floats x) {
    const Floats square = x * x;
    Floats p = multiply_add(splat(-5.70498872745e-3F), square, splat(2.06390887954e-2F));
    p = multiply_add(p, square, splat(-5.37397155531e-2F));
    p = multiply_add(p, square, splat(1.33314422036e-1F));
    p = multiply_add(p, square, splat(-3.33332819422e-1F));
    const Floats near = multiply_add(p * square, x, x);
    const Floats size = x < 0.0F ? -x : x;
    const Floats far = 1.0F - 2.0F / (exp_lanes(size + size) + 1.0F);
    const Floats value = size < 0.625F ? near : (x < 0.0F ? -far : far);
    return x == x ? value : x;  // NaN stays NaN
}

void tanh_all(float* t, std::size_t n) {
    const std::size_t whole = n - n % kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) store(t + i, tanh_lanes(load(t + i)));
    if (whole == n) return;
    float lanes[kLanes];
    store(lanes, tanh_lanes(load_part(t + whole, static_cast<int>(n - whole))));
    for (std::size_t i = whole; i < n; ++i) t[i] = lanes[i - whole];
}

}  // namespace

extern const LoraKernels kLoraKernels;
const LoraKernels kLoraKernels{ATTUNE_KERNEL_NAME, apply<float>, apply<Bf16>, shrink<float>, shrink<Bf16>,
                               expand<float>,      expand<Bf16>, add_gain,    tanh_all};

}  // namespace attune::ATTUNE_KERNEL_SET
