#include "engine/files/dequantize.hpp"

#include "engine/files/half.hpp"

#include <array>
#include <cstdint>
#include <cstring>

// The block formats of ggml (ggml-common.h). A block of 32 values has one or two scales of 16 bits; a "K" block of 256
// values has them too, and 8 or 16 groups with small scales of their own. Scale, small scale and value have at most 11,
// 8 and 5 significant bits, so their product is exact and only subtracting the minimum rounds. This file is compiled
// with -ffp-contract=off all the same, so that nothing hangs on that.
namespace attune {
namespace {

using Byte = std::uint8_t;

constexpr int kGroups32 = 8;  // groups of 32 values in a K block

float half_at(const Byte* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return half_to_float(bits);
}

// A block of 32 unpacks to small integers first and is scaled then: two plain loops the compiler turns into vectors.
template <class T>
void scale_all(const T* __restrict values, float scale, float* __restrict to) {
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(values[i]);
}
template <class T>
void scale_all(const T* __restrict values, float scale, float minimum, float* __restrict to) {
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(values[i]) + minimum;
}

// 32 values: the low nibbles of 16 bytes, then the high ones.
void nibbles(const Byte* __restrict packed, std::int8_t offset, std::int8_t* __restrict values) {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<std::int8_t>((packed[i] & 15) - offset);
    for (int i = 0; i < 16; ++i) values[i + 16] = static_cast<std::int8_t>((packed[i] >> 4) - offset);
}

void q4_0(const Byte* __restrict block, float* __restrict to) {
    std::int8_t values[32];
    nibbles(block + 2, 8, values);
    scale_all(values, half_at(block), to);
}

void q4_1(const Byte* __restrict block, float* __restrict to) {
    std::int8_t values[32];
    nibbles(block + 4, 0, values);
    scale_all(values, half_at(block), half_at(block + 2), to);
}

// As Q4_0 and Q4_1, and bit i of 32 more bits is the fifth bit of value i. Looked up, as SSE2 has no shift by lane.
constexpr auto kBit = [] {
    std::array<std::uint32_t, 32> bits{};
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = 1U << i;
    return bits;
}();
void five_bits(const Byte* __restrict high, const Byte* __restrict packed, int offset,
               std::int32_t* __restrict values) {
    std::int8_t low[32];
    nibbles(packed, 0, low);
    std::uint32_t bits;
    std::memcpy(&bits, high, sizeof bits);
    for (std::size_t i = 0; i < 32; ++i) values[i] = low[i] + ((bits & kBit[i]) != 0 ? 16 : 0) - offset;
}

void q5_0(const Byte* __restrict block, float* __restrict to) {
    std::int32_t values[32];
    five_bits(block + 2, block + 6, 16, values);
    scale_all(values, half_at(block), to);
}

void q5_1(const Byte* __restrict block, float* __restrict to) {
    std::int32_t values[32];
    five_bits(block + 4, block + 8, 0, values);
    scale_all(values, half_at(block), half_at(block + 2), to);
}

void q8_0(const Byte* __restrict block, float* __restrict to) {
    const float scale = half_at(block);
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

// In the K formats of 2 and 3 bits, bytes 32h..32h+31 of `packed` hold, two bits each, four groups of 32 values:
// group 4h + s at shift 2s. Each half of a group has its scale.
void q2_k(const Byte* __restrict block, float* __restrict to) {
    const Byte* scales = block;
    const Byte* packed = block + 16;
    const float scale = half_at(block + 80);
    const float minimum = half_at(block + 82);
    for (int group = 0; group < kGroups32; ++group) {
        const Byte* bytes = packed + 32 * (group / 4);
        const int shift = 2 * (group % 4);
        for (int half = 0; half < 2; ++half) {
            const Byte small = scales[2 * group + half];
            const float group_scale = scale * static_cast<float>(small & 15);
            const float group_minimum = minimum * static_cast<float>(small >> 4);
            for (int i = 0; i < 16; ++i)
                to[32 * group + 16 * half + i] =
                    group_scale * static_cast<float>((bytes[16 * half + i] >> shift) & 3) - group_minimum;
        }
    }
}

// Bit `group` of high[i] clear means 4 less. The 16 scales of 6 bits lie as 8 bytes of low nibbles (scales 0-7, then
// 8-15 in the high ones) and 4 bytes of upper pairs (scale s in byte s % 4).
void q3_k(const Byte* __restrict block, float* __restrict to) {
    const Byte* high = block;
    const Byte* packed = block + 32;
    const Byte* scales = block + 96;
    const float scale = half_at(block + 108);
    for (int group = 0; group < kGroups32; ++group) {
        const Byte* bytes = packed + 32 * (group / 4);
        const int shift = 2 * (group % 4);
        for (int half = 0; half < 2; ++half) {
            const int s = 2 * group + half;
            const int low_bits = (scales[s % 8] >> (4 * (s / 8))) & 15;
            const int high_bits = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
            const float group_scale = scale * static_cast<float>((low_bits | (high_bits << 4)) - 32);
            for (int i = 0; i < 16; ++i) {
                const int value = (bytes[16 * half + i] >> shift) & 3;
                const int offset = ((high[16 * half + i] >> group) & 1) * 4 - 4;
                to[32 * group + 16 * half + i] = group_scale * static_cast<float>(value + offset);
            }
        }
    }
}

// The 8 scales and 8 minima of 6 bits in the 12 bytes of Q4_K and Q5_K: whole in the low bits for groups 0-3; for 4-7
// the low nibbles are in bytes 8-11 and the upper pairs above those of group - 4.
struct ScaleAndMinimum {
    float scale, minimum;
};
ScaleAndMinimum small_scales(const Byte* scales, int group) {
    if (group < 4) return {static_cast<float>(scales[group] & 63), static_cast<float>(scales[4 + group] & 63)};
    const int low = group - 4;
    return {static_cast<float>((scales[8 + low] & 15) | ((scales[low] >> 2) & 0x30)),
            static_cast<float>((scales[8 + low] >> 4) | ((scales[4 + low] >> 2) & 0x30))};
}

// Bytes 32p..32p+31 hold group 2p in the low nibbles and 2p + 1 in the high ones.
void q4_k(const Byte* __restrict block, float* __restrict to) {
    const float scale = half_at(block);
    const float minimum = half_at(block + 2);
    const Byte* packed = block + 16;
    for (int group = 0; group < kGroups32; ++group) {
        const auto small = small_scales(block + 4, group);
        const float group_scale = scale * small.scale;
        const float group_minimum = minimum * small.minimum;
        const Byte* bytes = packed + 32 * (group / 2);
        const int shift = 4 * (group % 2);
        for (int i = 0; i < 32; ++i)
            to[32 * group + i] = group_scale * static_cast<float>((bytes[i] >> shift) & 15) - group_minimum;
    }
}

// As Q4_K, and bit `group` of high[i] is the fifth bit.
void q5_k(const Byte* __restrict block, float* __restrict to) {
    const float scale = half_at(block);
    const float minimum = half_at(block + 2);
    const Byte* high = block + 16;
    const Byte* packed = block + 48;
    for (int group = 0; group < kGroups32; ++group) {
        const auto small = small_scales(block + 4, group);
        const float group_scale = scale * small.scale;
        const float group_minimum = minimum * small.minimum;
        const Byte* bytes = packed + 32 * (group / 2);
        const int shift = 4 * (group % 2);
        for (int i = 0; i < 32; ++i) {
            const int value = ((bytes[i] >> shift) & 15) | (((high[i] >> group) & 1) << 4);
            to[32 * group + i] = group_scale * static_cast<float>(value) - group_minimum;
        }
    }
}

// Of each 128 values, 64 bytes hold the low nibbles (values 0-63 low, 64-127 high) and 32 bytes the upper pairs (group
// g of 32 at shift 2g). 16 values share a signed scale of 8 bits.
void q6_k(const Byte* __restrict block, float* __restrict to) {
    const Byte* scales = block + 192;
    const float scale = half_at(block + 208);
    for (int group = 0; group < kGroups32; ++group) {
        const int quarter = group % 4;
        const Byte* low = block + 64 * (group / 4) + 32 * (quarter % 2);
        const Byte* high = block + 128 + 32 * (group / 4);
        const int low_shift = 4 * (quarter / 2);
        const int high_shift = 2 * quarter;
        for (int half = 0; half < 2; ++half) {
            const float group_scale = scale * static_cast<float>(static_cast<std::int8_t>(scales[2 * group + half]));
            for (int i = 16 * half; i < 16 * half + 16; ++i) {
                const int value = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
                to[32 * group + i] = group_scale * static_cast<float>(value - 32);
            }
        }
    }
}

template <StoredType type, void (*decode)(const Byte*, float*)>
bool each(const std::byte* from, float* to, std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i)
        decode(reinterpret_cast<const Byte*>(from) + i * block_bytes(type), to + i * block_elements(type));
    return true;
}

}  // namespace

bool dequantize(StoredType type, const std::byte* from, float* to, std::size_t blocks) {
    switch (type) {
        case StoredType::q4_0:
            return each<StoredType::q4_0, q4_0>(from, to, blocks);
        case StoredType::q4_1:
            return each<StoredType::q4_1, q4_1>(from, to, blocks);
        case StoredType::q5_0:
            return each<StoredType::q5_0, q5_0>(from, to, blocks);
        case StoredType::q5_1:
            return each<StoredType::q5_1, q5_1>(from, to, blocks);
        case StoredType::q8_0:
            return each<StoredType::q8_0, q8_0>(from, to, blocks);
        case StoredType::q2_k:
            return each<StoredType::q2_k, q2_k>(from, to, blocks);
        case StoredType::q3_k:
            return each<StoredType::q3_k, q3_k>(from, to, blocks);
        case StoredType::q4_k:
            return each<StoredType::q4_k, q4_k>(from, to, blocks);
        case StoredType::q5_k:
            return each<StoredType::q5_k, q5_k>(from, to, blocks);
        case StoredType::q6_k:
            return each<StoredType::q6_k, q6_k>(from, to, blocks);
        default:
            return false;
    }
}

}  // namespace attune
