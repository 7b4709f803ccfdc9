#include "engine/kv/block_pool.hpp"

#include "attune/assert.hpp"

namespace attune {

BlockPool::BlockPool(int blocks) : owners_(static_cast<std::size_t>(blocks), 0), index_(blocks) {
    empty_.reserve(owners_.size());
    for (int block = blocks - 1; block >= 0; --block) empty_.push_back(BlockId{block});
}

std::optional<BlockId> BlockPool::allocate() {
    std::optional<BlockId> block;
    if (empty_.empty()) {
        block = index_.evict();
    } else {
        block = empty_.back();
        empty_.pop_back();
    }
    if (block) owners_[static_cast<std::size_t>(value_of(*block))] = 1;
    return block;
}

void BlockPool::share(BlockId block) {
    if (owners(block) == 0) index_.wake(block);
    ++owners_[static_cast<std::size_t>(value_of(block))];
}

void BlockPool::release(BlockId block) {
    ATTUNE_ASSERT(owners(block) > 0);
    if (--owners_[static_cast<std::size_t>(value_of(block))] > 0) return;
    if (index_.holds(block)) {
        index_.rest(block);
    } else {
        empty_.push_back(block);
    }
}

std::optional<BlockId> BlockPool::cache(const BlockKey& key, BlockId block) {
    ATTUNE_ASSERT(owners(block) > 0);
    return index_.enter(key, block);
}

void BlockPool::forget(std::span<const BlockId> blocks) {
    for (const BlockId block : blocks) {
        if (owners(block) > 0 || !index_.holds(block)) continue;
        for (const BlockId gone : index_.forget(block)) empty_.push_back(gone);
    }
}

void BlockPool::forget_all() {
    for (const BlockId block : index_.forget_all()) empty_.push_back(block);
}

int BlockPool::owners(BlockId block) const {
    ATTUNE_ASSERT(value_of(block) >= 0 && value_of(block) < total_blocks());
    return owners_[static_cast<std::size_t>(value_of(block))];
}

}  // namespace attune
