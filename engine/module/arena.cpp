#include "engine/module/arena.hpp"

#include <iterator>

namespace attune {

Arena::Arena(std::uint64_t bytes) : capacity_(bytes / kAlignment * kAlignment) {
    if (capacity_ > 0) holes_[0] = capacity_;
}

std::optional<std::uint64_t> Arena::take(std::uint64_t bytes) {
    bytes = rounded(bytes);
    if (bytes == 0) return 0;
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
        const auto [offset, size] = *hole;
        if (size < bytes) continue;
        holes_.erase(hole);
        if (size > bytes) holes_[offset + bytes] = size - bytes;
        used_ += bytes;
        return offset;
    }
    return std::nullopt;
}

void Arena::give(std::uint64_t offset, std::uint64_t bytes) {
    bytes = rounded(bytes);
    if (bytes == 0) return;
    used_ -= bytes;
    auto after = holes_.lower_bound(offset);
    if (after != holes_.end() && offset + bytes == after->first) {
        bytes += after->second;
        after = holes_.erase(after);
    }
    if (after != holes_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    holes_[offset] = bytes;
}

}  // namespace attune
