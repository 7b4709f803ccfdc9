#include "engine/schedule/sequence.hpp"

#include "attune/assert.hpp"
#include "engine/kv/block_size.hpp"

#include <algorithm>
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
      blocks_(other.blocks_.fork()) {
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
    blocks_.shrink_to(length());
}

bool Sequence::reserve(std::vector<BlockCopy>& copies) {
    const bool begins = !has_blocks();
    if (begins && modules_.virtual_tokens.prefix != nullptr) {
        blocks_ = modules_.virtual_tokens.prefix->fork();
        computed_ = virtual_tokens();
    }
    // Rolled back to exactly what is in the cache: the last row is wanted again.
    if (pending() == 0) --computed_;
    if (blocks_.grow_to(length()) && blocks_.make_writable(computed_, length(), copies)) return true;
    // A prefix has one partly filled block to copy, so a failure here has noted no copy; it waits without blocks.
    if (begins) restart();
    return false;
}

int Sequence::missing_blocks() const {
    auto held = static_cast<int>(blocks_.blocks().size());
    if (!has_blocks() && modules_.virtual_tokens.prefix != nullptr) held = virtual_tokens() / kBlockTokens;
    return BlockTable::blocks_for(length()) - held;
}

void Sequence::advance(int rows) {
    ATTUNE_ASSERT(rows > 0 && rows <= pending());
    computed_ += rows;
    if (pending() == 0) decoding_ = true;
}

void Sequence::restart() {
    blocks_.clear();
    computed_ = 0;
    decoding_ = false;
}

void Sequence::restart(SequenceModules modules) {
    restart();
    set_modules(std::move(modules));
}

}  // namespace attune
