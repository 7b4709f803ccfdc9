#pragma once

#include <bit>
#include <cstdint>

namespace attune {

/// IEEE binary16 to float, exactly. Loops over it vectorise where -fno-trapping-math lets both arms be computed.
inline float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
    const std::uint32_t magnitude = half & 0x7FFFU;
    // Subnormals are multiples of 2^-24; the rest moves its exponent from bias 15 to 127, infinities and NaN to 255.
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t bias = magnitude >= 0x7C00U ? (255U - 31U) << 23 : (127U - 15U) << 23;
    const std::uint32_t normal = (magnitude << 13) + bias;
    const std::uint32_t bits = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(sign | bits);
}

/// Nearest even; beyond the largest number infinity. NaN stays NaN.
inline std::uint16_t float_to_half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000U;
    const std::uint32_t magnitude = word & 0x7FFFFFFFU;
    std::uint32_t half = 0;
    if (magnitude > 0x7F800000U) {
        half = 0x7E00U;
    } else if (magnitude >= 0x477FF000U) {  // 65520, halfway between the largest number and the next power of two
        half = 0x7C00U;
    } else if (magnitude < 0x38800000U) {  // subnormal: adding 1/2 rounds to multiples of 2^-24
        half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
    } else {
        half = (magnitude - ((127U - 15U) << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
}

}  // namespace attune
