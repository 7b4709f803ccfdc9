#pragma once

#include "attune/ids.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace attune {

/// Which KV blocks are free and how many sequences hold each of the others. Only numbers: the tensors are KvCache's.
class BlockPool {
public:
    explicit BlockPool(int blocks);

    /// A block with one owner; nothing when all are taken.
    std::optional<BlockId> allocate();
    /// One more owner of a block that somebody holds.
    void share(BlockId block);
    /// One owner less; the block is free when the last one left.
    void release(BlockId block);

    int owners(BlockId block) const;
    int free_blocks() const { return static_cast<int>(free_.size()); }
    int total_blocks() const { return static_cast<int>(owners_.size()); }

private:
    std::vector<std::int32_t> owners_;  // [blocks], 0 = free
    std::vector<BlockId> free_;         // a stack: the block freed last is the one still warm in the caches
};

}  // namespace attune
