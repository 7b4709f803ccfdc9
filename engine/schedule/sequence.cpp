#include "engine/schedule/sequence.hpp"

#include "attune/assert.hpp"
#include "engine/kv/block_size.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace attune {

Sequence::Sequence(Start start, BlockPool& pool)
    : request_(start.request),
      order_(start.order),
      tokens_(std::move(start.prompt)),
      prompt_tokens_(static_cast<int>(tokens_.size())),
      blocks_(pool) {
    ATTUNE_ASSERT(!tokens_.empty());
    set_modules(std::move(start.modules));
}

Sequence::Sequence(const Sequence& other, int choice)
    : request_(other.request_),
      order_(other.order_),
      tokens_(other.tokens_),
      prompt_tokens_(other.prompt_tokens_),
      computed_(other.computed_),
      decoding_(other.decoding_),
      modules_(other.modules_),
      logits_from_(other.logits_from_),
      blocks_(other.blocks_.fork()),
      cached_blocks_(other.cached_blocks_),
      cached_tokens_(other.cached_tokens_),
      caching_(other.caching_),
      cache_apply_(other.cache_apply_) {
    order_.choice = choice;
}

Sequence Sequence::fork(int choice) const { return Sequence(*this, choice); }

void Sequence::set_modules(SequenceModules modules) {
    modules_ = std::move(modules);
    std::erase_if(modules_.list, [](const SequenceModule& module) { return module.slot.weight == 0.0F; });
}

TokenId Sequence::token_at(int position) const {
    const int token = position - virtual_tokens();
    return token < 0 ? -1 - position : tokens_[static_cast<std::size_t>(token)];
}

void Sequence::append(std::span<const TokenId> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

void Sequence::rollback(int n) {
    ATTUNE_ASSERT(n >= 0 && n <= static_cast<int>(generated().size()));
    tokens_.resize(tokens_.size() - static_cast<std::size_t>(n));
    computed_ = std::min(computed_, length());
    cached_blocks_ = std::min(cached_blocks_, computed_ / kBlockTokens);
    blocks_.shrink_to(length());
}

bool Sequence::reserve(std::vector<BlockCopy>& copies) {
    const bool begins = !has_blocks();
    if (begins) {
        cached_blocks_ = prefix_blocks();
        if (modules_.virtual_tokens.prefix != nullptr) {
            blocks_ = modules_.virtual_tokens.prefix->fork();
            computed_ = virtual_tokens();
        }
    }
    if (!decoding_) take_cached();
    // Rolled back to exactly what is in the cache: the last row is wanted again.
    if (pending() == 0) --computed_;
    cached_blocks_ = std::min(cached_blocks_, computed_ / kBlockTokens);
    if (blocks_.grow_to(length()) && blocks_.make_writable(computed_, length(), copies)) return true;
    // A prefix has one partly filled block to copy, so a failure here has noted no copy; it waits without blocks.
    if (begins) restart();
    return false;
}

int Sequence::missing_blocks() const {
    auto held = static_cast<int>(blocks_.blocks().size());
    if (!has_blocks()) {
        held = prefix_blocks();
        // Cached blocks that nobody holds are counted as free, so they are missing.
        std::optional<BlockId> parent;
        for (int block = held; (parent = find_cached(block, parent)); ++block)
            held += blocks_.pool().owners(*parent) > 0 ? 1 : 0;
    }
    return BlockTable::blocks_for(length()) - held;
}

int Sequence::prefix_blocks() const {
    return modules_.virtual_tokens.prefix != nullptr ? virtual_tokens() / kBlockTokens : 0;
}

std::optional<BlockId> Sequence::parent_of(int block) const {
    if (block <= prefix_blocks()) return std::nullopt;
    return blocks_.blocks()[static_cast<std::size_t>(block) - 1];
}

template <class Use>
auto Sequence::with_key(int block, std::optional<BlockId> parent, Use use) const {
    std::array<TokenId, kBlockTokens> tokens{};
    const int first = block * kBlockTokens;
    for (int i = 0; i < kBlockTokens; ++i) tokens[static_cast<std::size_t>(i)] = token_at(first + i);
    const auto behind = std::find_if(modules_.cache_weights.rbegin(), modules_.cache_weights.rend(),
                                     [&](const CacheWeights& weights) { return weights.from < first + kBlockTokens; });
    return use(BlockKey{parent, behind->text, tokens, cache_apply_});
}

std::optional<BlockId> Sequence::find_cached(int block, std::optional<BlockId> parent) const {
    if (!can_cache() || (block + 1) * kBlockTokens > logits_from()) return std::nullopt;
    return with_key(block, parent, [this](const BlockKey& key) { return blocks_.pool().find_cached(key); });
}

/// Also in the middle of a prompt: another request may have read the same one meanwhile.
void Sequence::take_cached() {
    while (const auto found = find_cached(cached_blocks_, parent_of(cached_blocks_))) {
        blocks_.put(cached_blocks_++, *found);
        const int end = cached_blocks_ * kBlockTokens;
        if (end <= computed_) continue;
        cached_tokens_ += std::max(end - std::max(computed_, virtual_tokens()), 0);
        computed_ = end;
    }
}

void Sequence::cache_blocks() {
    while (can_cache() && (cached_blocks_ + 1) * kBlockTokens <= computed_) {
        const auto at = static_cast<std::size_t>(cached_blocks_);
        const auto kept = with_key(cached_blocks_, parent_of(cached_blocks_), [&](const BlockKey& key) {
            return blocks_.pool().cache(key, blocks_.blocks()[at]);
        });
        if (!kept) return;
        // Another's block with the same bits: one of them is enough.
        blocks_.put(cached_blocks_++, *kept);
    }
}

void Sequence::set_apply(ApplyMode mode) {
    if (mode != std::exchange(cache_apply_, mode)) stop_caching();
}

void Sequence::stop_caching() {
    if (has_blocks()) caching_ = false;
}

void Sequence::advance(int rows) {
    ATTUNE_ASSERT(rows > 0 && rows <= pending());
    computed_ += rows;
    if (pending() == 0) decoding_ = true;
}

void Sequence::restart() {
    blocks_.clear();
    cached_blocks_ = 0;
    cached_tokens_ = 0;
    caching_ = true;
    computed_ = 0;
    decoding_ = false;
}

void Sequence::restart(SequenceModules modules) {
    restart();
    parked_ = false;
    set_modules(std::move(modules));
}

}  // namespace attune
