#include "engine/weights/quantise.hpp"

#include "engine/files/half.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace attune {

namespace {

using Byte = std::uint8_t;

/// Infinite beyond 65504.
float as_half(float value) { return half_to_float(float_to_half(value)); }

float half_at(const Byte* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return half_to_float(bits);
}

bool all_finite(std::span<const float> values) {
    std::uint32_t bad = 0;
    for (const float value : values)
        bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U);
    return bad == 0;
}

/// codes = (values - offset) / scale, to the nearest from 0 to `top`; all of one value when scale is 0.
void round_codes(const float* values, float scale, float offset, int top, Byte* codes) {
    const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    const auto most = static_cast<float>(top);
    for (int i = 0; i < kQuantGroup; ++i) {
        const float code = (values[i] - offset) * inverse + 0.5F;
        // A NaN becomes 0: its scale or minimum is refused afterwards.
        codes[i] = static_cast<Byte>(static_cast<int>(std::min(std::max(0.0F, code), most + 0.5F)));
    }
}

// Eight sums side by side, added up at the end: what a compiler may do in vectors.
constexpr int kSums = 8;
float total(const float* sums) {
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

float squared_error(const float* values, const Byte* codes, float scale, float minimum) {
    float sums[kSums] = {};
    for (int i = 0; i < kQuantGroup; i += kSums) {
        for (int k = 0; k < kSums; ++k) {
            const float off = values[i + k] - (scale * static_cast<float>(codes[i + k]) + minimum);
            sums[k] += off * off;
        }
    }
    return total(sums);
}

/// The scale and minimum of the least squared error for these codes. False when all codes are one.
bool fit(const float* values, const Byte* codes, float& scale, float& minimum) {
    float value_sums[kSums] = {};
    float product_sums[kSums] = {};
    int code_sum = 0;
    int square_sum = 0;
    for (int i = 0; i < kQuantGroup; i += kSums) {
        for (int k = 0; k < kSums; ++k) {
            value_sums[k] += values[i + k];
            product_sums[k] += values[i + k] * static_cast<float>(codes[i + k]);
            code_sum += codes[i + k];
            square_sum += codes[i + k] * codes[i + k];
        }
    }
    const int spread = kQuantGroup * square_sum - code_sum * code_sum;
    if (spread == 0) return false;
    const auto n = static_cast<float>(kQuantGroup);
    const float values_in_all = total(value_sums);
    scale = (n * total(product_sums) - static_cast<float>(code_sum) * values_in_all) / static_cast<float>(spread);
    minimum = (values_in_all - scale * static_cast<float>(code_sum)) / n;
    return true;
}

/// From minimum to maximum in 15 steps, then twice the best line through the codes and codes anew, while that is
/// nearer.
void quantise_with_minimum(const float* values, float low, float high, Byte* codes, float& scale, float& minimum) {
    minimum = as_half(low);
    scale = as_half((high - minimum) / 15.0F);
    round_codes(values, scale, minimum, 15, codes);
    float least = squared_error(values, codes, scale, minimum);
    Byte other[kQuantGroup];
    std::copy_n(codes, kQuantGroup, other);
    for (int round = 0; round < 2; ++round) {
        float other_scale = 0;
        float other_minimum = 0;
        if (!fit(values, other, other_scale, other_minimum)) return;
        other_scale = as_half(other_scale);
        other_minimum = as_half(other_minimum);
        round_codes(values, other_scale, other_minimum, 15, other);
        const float error = squared_error(values, other, other_scale, other_minimum);
        if (!(error < least)) return;
        least = error;
        scale = other_scale;
        minimum = other_minimum;
        std::copy_n(other, kQuantGroup, codes);
    }
}

void quantise_group(Quant quant, const float* values, Byte* codes, float& scale, float& minimum) {
    float low = values[0];
    float high = values[0];
    for (int i = 1; i < kQuantGroup; ++i) {
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
    }
    // The codes are made for the scale as it is stored.
    if (quant == Quant::int8) {
        scale = as_half(std::max(-low, high) / 127.0F);
        round_codes(values, scale, -128.0F * scale, 255, codes);
    } else if (quant == Quant::int4) {
        // Eight steps on the side of the largest magnitude, seven on the other; the scale has the sign for it.
        scale = as_half((-low > high ? low : high) / -8.0F);
        round_codes(values, scale, -8.0F * scale, 15, codes);
    } else {
        quantise_with_minimum(values, low, high, codes, scale, minimum);
    }
}

/// 32 codes: the low nibbles of 16 bytes, then the high ones.
void nibbles(const Byte* packed, Byte* codes) {
    for (int i = 0; i < 16; ++i) codes[i] = packed[i] & 15;
    for (int i = 0; i < 16; ++i) codes[16 + i] = packed[i] >> 4;
}

/// A block of Q4_K: 8 groups under a float16 scale and minimum, with 6 bits of their own each.
void take_q4_k(const Byte* block, Byte* codes, float* scales, float* minima) {
    const float scale = half_at(block);
    const float minimum = half_at(block + 2);
    const Byte* small = block + 4;
    for (int group = 0; group < 8; ++group) {
        int own = small[group % 4];
        int own_minimum = small[4 + group % 4];
        if (group < 4) {
            own &= 63;
            own_minimum &= 63;
        } else {
            const int low = small[8 + group % 4];
            own = (low & 15) | ((own >> 2) & 0x30);
            own_minimum = (low >> 4) | ((own_minimum >> 2) & 0x30);
        }
        scales[group] = as_half(scale * static_cast<float>(own));
        minima[group] = as_half(-minimum * static_cast<float>(own_minimum));
        const Byte* bytes = block + 16 + group / 2 * 32;
        for (int i = 0; i < 32; ++i)
            codes[group * 32 + i] = static_cast<Byte>(group % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4);
    }
}

void take_block(StoredType type, const Byte* block, Byte* codes, float* scales, float* minima) {
    switch (type) {
        case StoredType::q8_0:
            *scales = half_at(block);
            for (int i = 0; i < 32; ++i) codes[i] = static_cast<Byte>(block[2 + i] ^ 0x80);
            break;
        case StoredType::q4_0:
            *scales = half_at(block);
            nibbles(block + 2, codes);
            break;
        case StoredType::q4_1:
            *scales = half_at(block);
            *minima = half_at(block + 2);
            nibbles(block + 4, codes);
            break;
        default:
            take_q4_k(block, codes, scales, minima);
            break;
    }
}

float value_of(Quant quant, int code, float scale, float minimum) {
    return scale * static_cast<float>(code - zero_code(quant)) + minimum;
}

}  // namespace

void QuantRows::resize(std::int64_t rows) {
    const auto count = static_cast<std::size_t>(rows * columns);
    codes.resize(count);
    scales.resize(count / kQuantGroup);
    minima.resize(quant == Quant::int4_min ? scales.size() : 0);
}

bool quantise(std::span<const float> values, QuantRows& into) {
    if (!all_finite(values)) return false;
    into.resize(static_cast<std::int64_t>(values.size()) / into.columns);
    float none = 0;
    for (std::size_t group = 0; group < into.scales.size(); ++group) {
        const float* from = values.data() + group * kQuantGroup;
        quantise_group(into.quant, from, into.codes.data() + group * kQuantGroup, into.scales[group],
                       into.minima.empty() ? none : into.minima[group]);
    }
    return all_finite(into.scales) && all_finite(into.minima);
}

bool take_blocks(StoredType type, std::span<const std::byte> blocks, QuantRows& into) {
    const std::size_t elements = block_elements(type);
    const std::size_t count = blocks.size() / block_bytes(type);
    into.resize(static_cast<std::int64_t>(count * elements) / into.columns);
    const std::size_t groups = elements / kQuantGroup;
    float none = 0;
    for (std::size_t i = 0; i < count; ++i)
        take_block(type, reinterpret_cast<const Byte*>(blocks.data()) + i * block_bytes(type),
                   into.codes.data() + i * elements, into.scales.data() + i * groups,
                   into.minima.empty() ? &none : into.minima.data() + i * groups);
    return all_finite(into.scales) && all_finite(into.minima);
}

void dequantise(const QuantRows& from, std::span<float> into) {
    for (std::size_t i = 0; i < from.codes.size(); ++i) {
        const std::size_t group = i / kQuantGroup;
        into[i] =
            value_of(from.quant, from.codes[i], from.scales[group], from.minima.empty() ? 0.0F : from.minima[group]);
    }
}

void pack_panels(const QuantRows& from, std::byte* panels) {
    const std::int64_t groups = from.columns / kQuantGroup;
    const std::int64_t rows = from.rows();
    std::memset(
        panels, 0,
        static_cast<std::size_t>((rows + kPanelOutputs - 1) / kPanelOutputs * groups) * group_bytes(from.quant));
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto within = static_cast<std::size_t>(row % kPanelOutputs);
        auto* group = reinterpret_cast<Byte*>(panels) +
                      static_cast<std::size_t>(row / kPanelOutputs * groups) * group_bytes(from.quant);
        const Byte* codes = from.codes.data() + row * from.columns;
        for (std::int64_t g = 0; g < groups; ++g, group += group_bytes(from.quant), codes += kQuantGroup) {
            const auto at = static_cast<std::size_t>(row * groups + g);
            const std::uint16_t scale = float_to_half(from.scales[at]);
            std::memcpy(group + 2 * within, &scale, sizeof scale);
            if (!from.minima.empty()) {
                const std::uint16_t minimum = float_to_half(from.minima[at]);
                std::memcpy(group + 2 * (kPanelOutputs + within), &minimum, sizeof minimum);
            }
            Byte* to = group + group_scale_bytes(from.quant);
            if (from.quant == Quant::int8) {
                for (std::size_t step = 0; step < 8; ++step)
                    std::memcpy(to + step * 4 * kPanelOutputs + 4 * within, codes + 4 * step, 4);
                continue;
            }
            const std::uint32_t shift = within < 16 ? 0 : 4;
            for (std::size_t step = 0; step < 8; ++step) {
                std::uint32_t four;
                std::uint32_t there;
                Byte* word = to + step * 2 * kPanelOutputs + 4 * (within % 16);
                std::memcpy(&four, codes + 4 * step, sizeof four);
                std::memcpy(&there, word, sizeof there);
                there |= four << shift;
                std::memcpy(word, &there, sizeof there);
            }
        }
    }
}

void unpack_row(Quant quant, const std::byte* panels, std::int64_t row, std::int64_t columns, float* into) {
    const std::int64_t groups = columns / kQuantGroup;
    const auto within = static_cast<std::size_t>(row % kPanelOutputs);
    const auto* group = reinterpret_cast<const Byte*>(panels) +
                        static_cast<std::size_t>(row / kPanelOutputs * groups) * group_bytes(quant);
    for (std::int64_t g = 0; g < groups; ++g, group += group_bytes(quant), into += kQuantGroup) {
        const float scale = half_at(group + 2 * within);
        const float minimum = quant == Quant::int4_min ? half_at(group + 2 * (kPanelOutputs + within)) : 0.0F;
        const Byte* codes = group + group_scale_bytes(quant);
        for (std::size_t k = 0; k < kQuantGroup; ++k) {
            int code = 0;
            if (quant == Quant::int8) {
                code = codes[k / 4 * 4 * kPanelOutputs + 4 * within + k % 4];
            } else {
                const Byte both = codes[k / 4 * 2 * kPanelOutputs + 4 * (within % 16) + k % 4];
                code = within < 16 ? both & 15 : both >> 4;
            }
            into[k] = value_of(quant, code, scale, minimum);
        }
    }
}

}  // namespace attune
