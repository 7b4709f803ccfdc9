#include "engine/kv/prefix_index.hpp"

#include "attune/assert.hpp"

#include <algorithm>

namespace attune {

PrefixIndex::Key PrefixIndex::key_of(const BlockKey& key, std::int64_t weights) {
    ATTUNE_ASSERT(key.tokens.size() == static_cast<std::size_t>(kBlockTokens));
    Key out;
    out.parent = key.parent ? value_of(*key.parent) : -1;
    out.weights = weights;
    out.apply = key.apply;
    std::ranges::copy(key.tokens, out.tokens.begin());
    return out;
}

std::optional<BlockId> PrefixIndex::find(const BlockKey& key) const {
    const auto weights = weights_.find(key.weights);
    if (weights == weights_.end()) return std::nullopt;
    const auto found = by_key_.find(key_of(key, weights->second.number));
    if (found == by_key_.end()) return std::nullopt;
    return found->second;
}

std::optional<BlockId> PrefixIndex::enter(const BlockKey& key, BlockId block) {
    if (key.parent && !holds(*key.parent)) return std::nullopt;
    auto weights = weights_.find(key.weights);
    if (weights == weights_.end())
        weights = weights_.emplace(std::string(key.weights), Weights{next_weights_++, 0}).first;
    // Its place in a list is made here, so that a table that dies needs no memory to give its blocks back.
    held_.push_front(block);
    const auto [at, is_new] = by_key_.emplace(key_of(key, weights->second.number), block);
    if (!is_new) {
        held_.pop_front();
        return at->second;
    }
    Entry& entered = entry(block);
    ATTUNE_ASSERT(!entered.is_in);
    entered.is_in = true;
    entered.at = at;
    entered.place = held_.begin();
    entered.weights = weights;
    ++weights->second.blocks;
    if (key.parent) ++entry(*key.parent).children;
    return block;
}

void PrefixIndex::rest(BlockId block) {
    Entry& rested = entry(block);
    ATTUNE_ASSERT(rested.is_in && !rested.rests);
    resting_.splice(resting_.end(), held_, rested.place);
    rested.rests = true;
}

void PrefixIndex::wake(BlockId block) {
    Entry& woken = entry(block);
    ATTUNE_ASSERT(woken.is_in && woken.rests);
    held_.splice(held_.begin(), resting_, woken.place);
    woken.rests = false;
}

std::optional<BlockId> PrefixIndex::evict() {
    if (resting_.empty()) return std::nullopt;
    const BlockId block = resting_.front();
    ATTUNE_ASSERT(entry(block).children == 0);
    wake(block);
    erase(block);
    return block;
}

std::vector<BlockId> PrefixIndex::forget(BlockId block) {
    ATTUNE_ASSERT(entry(block).rests);
    std::vector<BlockId> family{block};
    for (std::size_t i = 0; i < family.size(); ++i) {
        const std::int32_t parent = value_of(family[i]);
        // Key{parent} lies before all of this parent's children.
        for (auto child = by_key_.lower_bound(Key{.parent = parent});
             child != by_key_.end() && child->first.parent == parent; ++child)
            family.push_back(child->second);
    }
    for (auto last = family.rbegin(); last != family.rend(); ++last) {
        wake(*last);
        erase(*last);
    }
    return family;
}

std::vector<BlockId> PrefixIndex::forget_all() {
    std::vector<BlockId> rested(resting_.begin(), resting_.end());
    entries_.assign(entries_.size(), Entry{});
    by_key_.clear();
    weights_.clear();
    held_.clear();
    resting_.clear();
    return rested;
}

void PrefixIndex::erase(BlockId block) {
    Entry& erased = entry(block);
    const std::int32_t parent = erased.at->first.parent;
    if (parent >= 0) --entries_[static_cast<std::size_t>(parent)].children;
    if (--erased.weights->second.blocks == 0) weights_.erase(erased.weights);
    by_key_.erase(erased.at);
    held_.erase(erased.place);  // it was woken before
    erased = Entry{};
}

}  // namespace attune
