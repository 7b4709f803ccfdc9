#pragma once

#include <array>
#include <cstdint>

namespace attune {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random words as a pure
/// function of a counter and a key. Nothing is stored, so nothing can depend on what else is in a batch.
inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
    constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = kMultiplier0 * counter[0];
        const std::uint64_t product1 = kMultiplier1 * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += 0x9E3779B9;  // golden ratio
        key[1] += 0xBB67AE85;  // sqrt(3) - 1
    }
    return counter;
}

/// The one random number that a token takes: uniform in [0, 1), 53 bits.
inline double token_uniform(std::uint64_t seed, int choice, int token_index) {
    const auto words = philox4x32({static_cast<std::uint32_t>(token_index), static_cast<std::uint32_t>(choice), 0, 0},
                                  {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t bits = (static_cast<std::uint64_t>(words[0]) << 32 | words[1]) >> 11;
    return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace attune
