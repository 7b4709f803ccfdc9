#include "engine/schedule/sequence.hpp"

#include "attune/assert.hpp"

#include <algorithm>
#include <utility>

namespace attune {

Sequence::Sequence(Start start, BlockPool& pool)
    : request_(start.request),
      order_(start.order),
      tokens_(std::move(start.prompt)),
      prompt_tokens_(static_cast<int>(tokens_.size())),
      modules_from_(start.modules_from),
      blocks_(pool) {
    ATTUNE_ASSERT(!tokens_.empty());
    set_slots(std::move(start.slots));
}

Sequence::Sequence(const Sequence& other, int choice)
    : request_(other.request_),
      order_(other.order_),
      tokens_(other.tokens_),
      prompt_tokens_(other.prompt_tokens_),
      computed_(other.computed_),
      decoding_(other.decoding_),
      slots_(other.slots_),
      modules_from_(other.modules_from_),
      logits_from_(other.logits_from_),
      blocks_(other.blocks_.fork()) {
    order_.choice = choice;
}

Sequence Sequence::fork(int choice) const { return Sequence(*this, choice); }

void Sequence::set_slots(std::vector<SlotWeight> slots) {
    slots_ = std::move(slots);
    std::erase_if(slots_, [](const SlotWeight& slot) { return slot.weight == 0.0F; });
}

void Sequence::append(std::span<const TokenId> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

void Sequence::rollback(int n) {
    ATTUNE_ASSERT(n >= 0 && n <= length() - prompt_tokens_);
    tokens_.resize(tokens_.size() - static_cast<std::size_t>(n));
    computed_ = std::min(computed_, length());
    blocks_.shrink_to(length());
}

bool Sequence::reserve(std::vector<BlockCopy>& copies) {
    // Rolled back to exactly what is in the cache: the last row is wanted again.
    if (pending() == 0) --computed_;
    return blocks_.grow_to(length()) && blocks_.make_writable(computed_, length(), copies);
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

void Sequence::restart(std::vector<SlotWeight> slots) {
    restart();
    set_slots(std::move(slots));
}

}  // namespace attune
