#include "engine/kv/block_table.hpp"

#include "attune/assert.hpp"
#include "engine/kv/block_size.hpp"

#include <algorithm>

namespace attune {

BlockTable::BlockTable(BlockTable&& other) noexcept : pool_(other.pool_), blocks_(std::move(other.blocks_)) {
    other.blocks_.clear();
}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
    if (this != &other) {
        clear();
        pool_ = other.pool_;
        blocks_ = std::move(other.blocks_);
        other.blocks_.clear();
    }
    return *this;
}

int BlockTable::blocks_for(int tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

bool BlockTable::grow_to(int tokens) {
    const int missing = blocks_for(tokens) - static_cast<int>(blocks_.size());
    if (missing > pool_->free_blocks()) return false;
    for (int i = 0; i < missing; ++i) blocks_.push_back(*pool_->allocate());
    return true;
}

void BlockTable::shrink_to(int tokens) {
    const auto keep = static_cast<std::size_t>(blocks_for(tokens));
    while (blocks_.size() > keep) {
        pool_->release(blocks_.back());
        blocks_.pop_back();
    }
}

void BlockTable::put(int i, BlockId block) {
    const auto at = static_cast<std::size_t>(i);
    ATTUNE_ASSERT(at <= blocks_.size());
    if (at == blocks_.size()) {
        blocks_.push_back(block);
        pool_->share(block);
    } else if (blocks_[at] != block) {
        pool_->share(block);
        pool_->release(std::exchange(blocks_[at], block));
    }
}

bool BlockTable::make_writable(int first, int last, std::vector<BlockCopy>& copies) {
    for (int i = first / kBlockTokens; i < blocks_for(last); ++i) {
        BlockId& block = blocks_[static_cast<std::size_t>(i)];
        if (pool_->owners(block) == 1 && !pool_->is_cached(block)) continue;
        const std::optional<BlockId> fresh = pool_->allocate();
        if (!fresh) return false;
        copies.push_back({block, *fresh});
        pool_->release(block);
        block = *fresh;
    }
    return true;
}

BlockTable BlockTable::fork() const {
    BlockTable twin(*pool_);
    twin.blocks_ = blocks_;
    for (const BlockId block : blocks_) pool_->share(block);
    return twin;
}

bool BlockTable::holds(BlockId block) const {
    return std::find(blocks_.begin(), blocks_.end(), block) != blocks_.end();
}

}  // namespace attune
