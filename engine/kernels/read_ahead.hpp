#pragma once

#include "engine/kernels/lines_ahead.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune {

/// Collects what is read after a product, in the order of its reading. With many rows a product is bound by its
/// multiply-adds and the memory idles; what modules add to it afterwards is bound by reading their bytes. Kept from
/// product to product, so that a steady step allocates nothing.
class ReadAhead {
public:
    /// More would push itself, or the product's own input, out of the caches again before it is read.
    static constexpr std::int64_t kMostBytes = std::int64_t{8} << 20;

    void clear() {
        runs_.clear();
        lines_ = 0;
    }
    /// The lines of [from, from + bytes), as far as kMostBytes goes; null or nothing: none.
    void add(const void* from, std::size_t bytes) {
        if (from == nullptr || bytes == 0) return;
        const auto address = reinterpret_cast<std::uintptr_t>(from);
        const auto lead = static_cast<std::ptrdiff_t>(address % static_cast<std::uintptr_t>(kCacheLine));
        const char* first = static_cast<const char*>(from) - lead;
        const std::int64_t count = (lead + static_cast<std::ptrdiff_t>(bytes) + kCacheLine - 1) / kCacheLine;
        const std::int64_t taken = std::min(count, kMostBytes / kCacheLine - lines_);
        if (taken <= 0) return;
        // A module's matrices most often lie one after the other.
        if (runs_.empty() || first != runs_.back().first + (lines_ - runs_.back().before) * kCacheLine)
            runs_.push_back({first, lines_});
        lines_ += taken;
    }

    std::int64_t lines() const { return lines_; }
    /// For a weight of so many panels; valid until the next call of a function that changes this.
    LinesAhead over(std::int64_t panels) const {
        return {runs_.data(), static_cast<std::int64_t>(runs_.size()), lines_, panels};
    }

private:
    std::vector<LineRun> runs_;
    std::int64_t lines_ = 0;
};

}  // namespace attune
