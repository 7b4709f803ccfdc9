#pragma once

#include "attune/ids.hpp"
#include "attune/token_event.hpp"
#include "engine/kv/block_size.hpp"

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// What a full block of keys and values follows from. Equal keys are equal bits.
struct BlockKey {
    std::optional<BlockId> parent;         ///< the cached block before it; none: its chain begins here
    std::string_view weights;              ///< the modules and their weights, and the salt
    std::span<const TokenId> tokens;       ///< [kBlockTokens]
    ApplyMode apply = ApplyMode::batched;  ///< how the modules were put on the base
};

/// Which full blocks can be shared by whom: a trie over blocks. Ids only, no tensor and no owner: who holds a block is
/// BlockPool's. A cached block that nobody holds rests, and leaves when the pool needs it, the longest unused first.
///
/// Keys are compared whole. A hash alone could meet another prompt's, and the answer would be read from that prompt.
///
/// Whoever holds a block holds its parent, and gives it back no earlier. So resting blocks have resting descendants
/// only, and these lie before them in the order of leaving.
class PrefixIndex {
public:
    explicit PrefixIndex(int blocks) : entries_(static_cast<std::size_t>(blocks)) {}

    std::optional<BlockId> find(const BlockKey& key) const;
    /// Enters a block that somebody holds; the answer is the block that the key stands for: this one, or the one that
    /// came first. Nothing when the parent is not cached.
    std::optional<BlockId> enter(const BlockKey& key, BlockId block);
    bool holds(BlockId block) const { return entry(block).is_in; }

    void rest(BlockId block);  ///< nobody holds it any more
    void wake(BlockId block);  ///< somebody does again

    /// Gives up the block that has rested longest.
    std::optional<BlockId> evict();
    /// Forgets a resting block and all behind it; the answer is which they were.
    std::vector<BlockId> forget(BlockId block);
    /// Forgets everything; the answer is what rested.
    std::vector<BlockId> forget_all();

    int blocks() const { return static_cast<int>(by_key_.size()); }
    int resting() const { return static_cast<int>(resting_.size()); }

private:
    struct Key {
        std::int32_t parent = -1;   // -1: none
        std::int64_t weights = -1;  // a number for their text, never used twice; -1 never occurs
        ApplyMode apply = ApplyMode::batched;
        std::array<TokenId, kBlockTokens> tokens = {};
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    struct Weights {
        std::int64_t number = 0;
        int blocks = 0;
    };
    using WeightsTable = std::map<std::string, Weights, std::less<>>;
    struct Entry {
        bool is_in = false;
        bool rests = false;
        int children = 0;
        std::map<Key, BlockId>::iterator at = {};
        WeightsTable::iterator weights = {};
        std::list<BlockId>::iterator place = {};  // in held_ or resting_
    };

    Entry& entry(BlockId block) { return entries_[static_cast<std::size_t>(value_of(block))]; }
    const Entry& entry(BlockId block) const { return entries_[static_cast<std::size_t>(value_of(block))]; }
    static Key key_of(const BlockKey& key, std::int64_t weights);
    void erase(BlockId block);

    std::vector<Entry> entries_;  // [blocks of the pool]
    std::map<Key, BlockId> by_key_;
    WeightsTable weights_;  // those of some block
    std::int64_t next_weights_ = 0;
    std::list<BlockId> held_;
    std::list<BlockId> resting_;  // the one that leaves first in front
};

}  // namespace attune
