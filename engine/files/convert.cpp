#include "engine/files/dequantize.hpp"
#include "engine/files/half.hpp"
#include "engine/files/stored_tensor.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace attune {
namespace {

// Files may put a tensor at any byte, so values are copied out rather than read through a cast pointer.
template <class T>
T load(const std::byte* from, std::size_t index) {
    T value;
    std::memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
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
            for (std::size_t i = 0; i < count; ++i) to[i] = half_to_float(load<std::uint16_t>(from, i));
            return true;
        case StoredType::f64:
            for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(load<double>(from, i));
            return true;
        default:
            return count % block_elements(type) == 0 && dequantize(type, from, to, count / block_elements(type));
    }
}

}  // namespace attune
