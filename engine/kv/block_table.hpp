#pragma once

#include "attune/ids.hpp"
#include "engine/kv/block_pool.hpp"

#include <span>
#include <utility>
#include <vector>

namespace attune {

/// A block whose content must be copied before the step writes into `to`.
struct BlockCopy {
    BlockId from{};
    BlockId to{};
    friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// The blocks of one sequence, in order of position. Gives them back to the pool when it dies; the pool outlives it.
class BlockTable {
public:
    explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
    ~BlockTable() { clear(); }
    BlockTable(BlockTable&& other) noexcept;
    BlockTable& operator=(BlockTable&& other) noexcept;
    BlockTable(const BlockTable&) = delete;
    BlockTable& operator=(const BlockTable&) = delete;

    /// How many blocks hold `tokens` positions.
    static int blocks_for(int tokens);

    /// Takes blocks until `tokens` positions fit. All or nothing.
    [[nodiscard]] bool grow_to(int tokens);
    /// Gives back the blocks beyond `tokens` positions.
    void shrink_to(int tokens);
    void clear() { shrink_to(0); }

    /// Takes a held or cached block as the next one, or in the place of block `i`, which is given back.
    void put(int i, BlockId block);

    /// Makes sure that this table alone holds the blocks of positions [first, last), so that they can be written;
    /// shared and cached ones are replaced, and `copies` says what to copy. False when blocks ran out (those replaced
    /// so far stay so).
    [[nodiscard]] bool make_writable(int first, int last, std::vector<BlockCopy>& copies);

    /// A second table over the same blocks.
    BlockTable fork() const;

    std::span<const BlockId> blocks() const { return blocks_; }
    bool holds(BlockId block) const;
    BlockPool& pool() const { return *pool_; }

private:
    BlockPool* pool_;
    std::vector<BlockId> blocks_;
};

}  // namespace attune
