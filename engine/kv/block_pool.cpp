#include "engine/kv/block_pool.hpp"

#include "attune/assert.hpp"

namespace attune {

BlockPool::BlockPool(int blocks) : owners_(static_cast<std::size_t>(blocks), 0) {
    free_.reserve(owners_.size());
    for (int block = blocks - 1; block >= 0; --block) free_.push_back(BlockId{block});
}

std::optional<BlockId> BlockPool::allocate() {
    if (free_.empty()) return std::nullopt;
    const BlockId block = free_.back();
    free_.pop_back();
    owners_[static_cast<std::size_t>(value_of(block))] = 1;
    return block;
}

void BlockPool::share(BlockId block) {
    ATTUNE_ASSERT(owners(block) > 0);
    ++owners_[static_cast<std::size_t>(value_of(block))];
}

void BlockPool::release(BlockId block) {
    ATTUNE_ASSERT(owners(block) > 0);
    if (--owners_[static_cast<std::size_t>(value_of(block))] == 0) free_.push_back(block);
}

int BlockPool::owners(BlockId block) const {
    ATTUNE_ASSERT(value_of(block) >= 0 && value_of(block) < total_blocks());
    return owners_[static_cast<std::size_t>(value_of(block))];
}

}  // namespace attune
