#pragma once

#include "attune/ids.hpp"
#include "engine/kv/prefix_index.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace attune {

/// Which KV blocks are free and how many sequences hold each of the others. Only numbers: the tensors are KvCache's.
///
/// A block is held, cached and at rest, or empty. Cached blocks that nobody holds count as free: allocate() takes them
/// when no empty one is left.
class BlockPool {
public:
    explicit BlockPool(int blocks);

    /// A block with one owner; nothing when all are taken.
    std::optional<BlockId> allocate();
    /// One more owner of a block that somebody holds, or that is cached.
    void share(BlockId block);
    /// One owner less; the block is free when the last one left.
    void release(BlockId block);

    /// As PrefixIndex. The block that enters is held by the caller, and so is its parent.
    std::optional<BlockId> find_cached(const BlockKey& key) const { return index_.find(key); }
    std::optional<BlockId> cache(const BlockKey& key, BlockId block);
    bool is_cached(BlockId block) const { return index_.holds(block); }
    /// Those of `blocks` that nobody holds leave the cache, and all that was cached behind them.
    void forget(std::span<const BlockId> blocks);
    /// Nothing is cached any more; who holds a block keeps it.
    void forget_all();

    int owners(BlockId block) const;
    int free_blocks() const { return static_cast<int>(empty_.size()) + index_.resting(); }
    int cached_blocks() const { return index_.blocks(); }
    int total_blocks() const { return static_cast<int>(owners_.size()); }

private:
    std::vector<std::int32_t> owners_;  // [blocks]
    std::vector<BlockId> empty_;        // a stack: the block freed last is the one still warm in the caches
    PrefixIndex index_;
};

}  // namespace attune
