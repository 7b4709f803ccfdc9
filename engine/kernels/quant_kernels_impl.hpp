// The loops over quantised weights, compiled once per instruction set: each quant_kernels_<set>.cpp defines
// ATTUNE_QUANT_SET (a namespace), ATTUNE_QUANT_ROWS (rows per register block) and ATTUNE_QUANT_NAME, then includes this
// file with its own -march, and with -ffp-contract=off: a product that one set rounds and another does not would give
// other bits. Everything lives in an unnamed namespace and nothing from the standard library is instantiated, so that
// no AVX-512 copy of a shared inline function can be picked by the linker.

#include "engine/kernels/lines_ahead.hpp"
#include "engine/kernels/quant_kernels.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace attune::ATTUNE_QUANT_SET {

namespace {

#include "engine/kernels/panel_share.hpp"
#include "engine/kernels/quant_dot.hpp"
#include "engine/kernels/row_blocks.hpp"

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef std::int8_t Bytes __attribute__((vector_size(kLanes)));

constexpr int kGroupVectors = kQuantGroup / kLanes;
constexpr int kPanelParts = kPanelOutputs / (2 * kLanes);  // two vectors of outputs at a time
static_assert(kQuantGroup % kLanes == 0 && kPanelOutputs % (2 * kLanes) == 0);

inline Floats load(const float* from) {
    Floats value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

inline void store(float* to, Floats value) { __builtin_memcpy(to, &value, sizeof value); }

inline Floats splat(float value) { return Floats{} + value; }

/// kLanes finite float16.
inline Floats load_halves(const std::uint8_t* from) {
#if defined(__AVX512F__)
    __m256i halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return (Floats)_mm512_cvtph_ps(halves);
#elif defined(__F16C__)
    __m128i halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return (Floats)_mm256_cvtph_ps(halves);
#else
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words);
    // The exponent's bias is off by 112 after the shift; multiplying mends subnormals, too.
    const Floats magnitude = (Floats)((words & 0x7fffU) << 13) * 0x1p112F;
    return (Floats)((Words)magnitude | ((words & 0x8000U) << 16));
#endif
}

// ---- activations

/// Nearest even, |value| < 2^21: adding 1.5 * 2^23 leaves the integer in the low bits.
inline Ints nearest(Floats value) {
    const Floats magic = splat(12582912.0F);
    return (Ints)(value + magic) - (Ints)magic;
}

/// One group. -> its scale; `sum` is that of its codes.
inline float quantise_group(const float* x, std::int8_t* codes, std::int32_t& sum) {
    // Compared as integers: NaN is larger than infinity, which is larger than any number.
    Words largest{};
    for (int v = 0; v < kGroupVectors; ++v) {
        const Words magnitude = (Words)load(x + v * kLanes) & 0x7fffffffU;
        largest = magnitude > largest ? magnitude : largest;
    }
    std::uint32_t peaks[kLanes];
    __builtin_memcpy(peaks, &largest, sizeof peaks);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) peaks[i] = peaks[i] > peaks[i + width] ? peaks[i] : peaks[i + width];
    }
    float peak;
    __builtin_memcpy(&peak, peaks, sizeof peak);
    const bool finite = peaks[0] < 0x7f800000U;
    // So small that 127 / peak could overflow: nothing.
    const bool some = finite && peak > 1e-30F;
    const Floats inverse = splat(some ? 127.0F / peak : 0.0F);
    Ints sums{};
    for (int v = 0; v < kGroupVectors; ++v) {
        const Ints values = some ? nearest(load(x + v * kLanes) * inverse) : Ints{};
        const Bytes bytes = __builtin_convertvector(values, Bytes);
        __builtin_memcpy(codes + v * kLanes, &bytes, sizeof bytes);
        sums += values;
    }
    std::int32_t lanes[kLanes];
    __builtin_memcpy(lanes, &sums, sizeof lanes);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    sum = lanes[0];
    return some ? peak / 127.0F : finite ? 0.0F : __builtin_nanf("");
}

void quantise_rows(const QuantRowsCall& call, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
        const float* x = call.x + row * call.x_stride;
        for (int group = 0; group < call.groups; ++group) {
            const std::int64_t at = row * call.groups + group;
            call.scales[at] = quantise_group(x + group * kQuantGroup, call.codes + at * kQuantGroup, call.sums[at]);
        }
    }
}

// ---- matrix products

// Each block of rows asks for the weights ahead again, since what comes too fast is dropped.

/// `lines`: how many of the panel's share are asked for meanwhile, if there are as many columns.
template <int Rows, Quant quant>
[[gnu::noinline]] void gemm_block(const QuantGemmCall& call, std::ptrdiff_t row, const std::uint8_t* panel, int part,
                                  float* y, PanelShare& share, std::int64_t lines) {
    constexpr int kSteps = kQuantGroup / 4;
    constexpr std::ptrdiff_t kStepBytes = kStepBytes8 * code_bits(quant) / 8;
    constexpr std::ptrdiff_t kHalf = kPanelOutputs / 2;
    constexpr int kGroupLines = static_cast<int>(group_bytes(quant) / kCacheLine);
    const std::ptrdiff_t groups = call.groups;
    std::int64_t group_lines = (lines + groups - 1) / groups;  // with each group
    if (group_lines > kQuantGroup) group_lines = kQuantGroup;
    const std::int8_t* x = call.codes + row * groups * kQuantGroup;
    const float* scales = call.scales + row * groups;
    const std::int32_t* sums = call.sums + row * groups;
    Floats low[Rows];
    Floats high[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) low[r] = high[r] = Floats{};
    for (std::ptrdiff_t group = 0; group < groups; ++group, panel += group_bytes(quant), x += kQuantGroup) {
#pragma GCC unroll 17
        for (int line = 0; line < kGroupLines; ++line) __builtin_prefetch(panel + kPrefetchBytes + kCacheLine * line);
        for (std::int64_t left = group_lines < lines ? group_lines : lines; left > 0;) {
            const char* aside = nullptr;
            const int run = share.take(left, aside);
            for (int line = 0; line < run; ++line) __builtin_prefetch(aside + kCacheLine * line, 0, 2);
            left -= run;
            lines -= run;
        }
        const std::uint8_t* codes = panel + group_scale_bytes(quant);
        Dots d0[Rows];
        Dots d1[Rows];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) d0[r] = d1[r] = start<quant>(sums[r * groups + group]);
#pragma GCC unroll 8
        for (int step = 0; step < kSteps; ++step) {
            Codes w0;
            Codes w1;
            code_vectors<quant>(codes + step * kStepBytes, part, w0, w1);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                std::int32_t four;
                __builtin_memcpy(&four, x + r * groups * kQuantGroup + 4 * step, sizeof four);
                dot<quant>(d0[r], w0, four);
                dot<quant>(d1[r], w1, four);
            }
        }
        const std::uint8_t* own = panel + 2 * kLanes * part;
        const Floats s0 = load_halves(own);
        const Floats s1 = load_halves(own + 2 * kHalf);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const float scale = scales[r * groups + group];
            low[r] += __builtin_convertvector((Ints)d0[r], Floats) * (s0 * scale);
            high[r] += __builtin_convertvector((Ints)d1[r], Floats) * (s1 * scale);
        }
        if constexpr (quant == Quant::int4_min) {
            const Floats m0 = load_halves(own + 4 * kHalf);
            const Floats m1 = load_halves(own + 6 * kHalf);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const float sum = scales[r * groups + group] * static_cast<float>(sums[r * groups + group]);
                low[r] += m0 * sum;
                high[r] += m1 * sum;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
        store(y + r * call.y_stride, low[r]);
        store(y + r * call.y_stride + kHalf, high[r]);
    }
}

template <Quant quant>
void gemm(const QuantGemmCall& call, std::int64_t begin, std::int64_t end) {
    const std::ptrdiff_t panel_bytes =
        static_cast<std::ptrdiff_t>(call.groups) * static_cast<std::ptrdiff_t>(group_bytes(quant));
    const auto multiply = [&]<int Rows>(const RowBlock& block, PanelShare& share) {
        const auto* panel = static_cast<const std::uint8_t*>(call.panels) + block.panel * panel_bytes;
        float* y = call.y + block.row * call.y_stride + block.panel * kPanelOutputs;
        for (int part = 0; part < kPanelParts; ++part)
            gemm_block<Rows, quant>(call, block.row, panel, part, y + part * kLanes, share,
                                    share.part((block.count - block.index) * kPanelParts - part));
    };
    multiply_panels<ATTUNE_QUANT_ROWS>(call.rows, static_cast<std::ptrdiff_t>(call.groups) * kQuantGroup, call.ahead,
                                       begin, end, multiply);
}

}  // namespace

extern const QuantKernels kKernels;
const QuantKernels kKernels{ATTUNE_QUANT_NAME, quantise_rows, gemm<Quant::int8>, gemm<Quant::int4>,
                            gemm<Quant::int4_min>};

}  // namespace attune::ATTUNE_QUANT_SET
