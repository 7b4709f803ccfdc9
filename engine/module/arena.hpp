#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace attune {

/// Places of a fixed run of bytes, first fit, neighbours joined when freed. Holds offsets, never memory.
class Arena {
public:
    static constexpr std::uint64_t kAlignment = 64;  ///< a cache line, and a vector

    /// Rounded down to whole places.
    explicit Arena(std::uint64_t bytes);

    static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

    /// The offset of `bytes` (rounded up), or nothing when no hole is large enough.
    std::optional<std::uint64_t> take(std::uint64_t bytes);
    /// Gives back what take() gave for the same size.
    void give(std::uint64_t offset, std::uint64_t bytes);

    std::uint64_t capacity() const { return capacity_; }
    std::uint64_t used() const { return used_; }

private:
    std::uint64_t capacity_ = 0;
    std::uint64_t used_ = 0;
    std::map<std::uint64_t, std::uint64_t> holes_;  // offset -> bytes; no two touch
};

}  // namespace attune
