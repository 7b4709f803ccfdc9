#include "engine/files/safetensors.hpp"

#include <bit>
#include <cstring>

namespace attune {
namespace {

// Module files may put a tensor at any byte, so values are copied out rather than read through a cast pointer.
template <class T>
T load(const std::byte* from, std::size_t index) {
    T value;
    std::memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
}

float from_f16(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
    const std::uint32_t magnitude = half & 0x7FFFU;
    // Subnormals are multiples of 2^-24; the rest moves its exponent from bias 15 to 127, infinities and NaN to 255.
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t bias = magnitude >= 0x7C00U ? (255U - 31U) << 23 : (127U - 15U) << 23;
    const std::uint32_t normal = (magnitude << 13) + bias;
    const std::uint32_t bits = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(sign | bits);
}

}  // namespace

bool convert_to_f32(StoredType type, const std::byte* from, float* to, std::size_t count) {
    switch (type) {
        case StoredType::f32:
            if (count > 0) std::memcpy(to, from, count * sizeof(float));
            return true;
        case StoredType::bf16:
            for (std::size_t i = 0; i < count; ++i)
                to[i] = std::bit_cast<float>(
                    static_cast<std::uint32_t>(static_cast<std::uint32_t>(load<std::uint16_t>(from, i)) << 16));
            return true;
        case StoredType::f16:
            for (std::size_t i = 0; i < count; ++i) to[i] = from_f16(load<std::uint16_t>(from, i));
            return true;
        case StoredType::f64:
            for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(load<double>(from, i));
            return true;
        default:
            return false;
    }
}

}  // namespace attune
