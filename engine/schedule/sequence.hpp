#pragma once

#include "attune/ids.hpp"
#include "engine/kv/block_table.hpp"
#include "engine/schedule/batch.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace attune {

/// Who goes first: higher priority, then earlier arrival, then lower choice. The last in this order is "the youngest".
struct SequenceOrder {
    int priority = 0;
    std::uint64_t arrival = 0;
    int choice = 0;

    friend std::strong_ordering operator<=>(const SequenceOrder& a, const SequenceOrder& b) {
        if (a.priority != b.priority) return b.priority <=> a.priority;
        if (a.arrival != b.arrival) return a.arrival <=> b.arrival;
        return a.choice <=> b.choice;
    }
    friend bool operator==(const SequenceOrder&, const SequenceOrder&) = default;
};

/// One choice of a request as the scheduler sees it: tokens, how many of them have their keys and values in the cache,
/// and in which blocks. What follows from the tokens (text, penalties, constraint) is the engine's.
///
/// A decode and a prompt chunk are the same thing here: tokens at [computed, length) are pending. So a preempted
/// sequence simply has everything pending again, its generated tokens included.
class Sequence {
public:
    struct Start {
        RequestId request{};
        SequenceOrder order;
        std::vector<TokenId> prompt;
        std::vector<SlotWeight> slots;  ///< weight 0 is left out
        int modules_from = 0;           ///< first position the slots touch
    };

    Sequence(Start start, BlockPool& pool);

    RequestId request() const { return request_; }
    int choice() const { return order_.choice; }
    const SequenceOrder& order() const { return order_; }

    std::span<const TokenId> tokens() const { return tokens_; }
    std::span<const TokenId> generated() const { return tokens().subspan(static_cast<std::size_t>(prompt_tokens_)); }
    int length() const { return static_cast<int>(tokens_.size()); }
    int prompt_tokens() const { return prompt_tokens_; }
    int computed() const { return computed_; }
    int pending() const { return length() - computed_; }
    /// It has read its whole context once since it (re)started; from then on it decodes.
    bool is_decoding() const { return decoding_; }

    std::span<const SlotWeight> slots() const { return slots_; }
    int modules_from() const { return modules_from_; }
    const BlockTable& blocks() const { return blocks_; }
    bool has_blocks() const { return !blocks_.blocks().empty(); }

    /// Positions from here on want their logits when their row is computed; without a wish only the last token does.
    int logits_from() const { return logits_from_.value_or(length() - 1); }
    void want_logits_from(std::optional<int> position) { logits_from_ = position; }

    /// Tokens that were sampled or guessed.
    void append(std::span<const TokenId> tokens);
    void append(TokenId token) { append(std::span(&token, 1)); }
    /// Forgets the last n generated tokens, their keys and values, and the blocks only they needed. When no token is
    /// appended before the next step, that step computes the last remaining token again, for its logits.
    void rollback(int n);

    /// Blocks for every pending token, held alone. False when they ran out.
    [[nodiscard]] bool reserve(std::vector<BlockCopy>& copies);
    /// A step computed the next `rows` pending tokens.
    void advance(int rows);
    /// Drops keys, values and blocks; all tokens are pending again.
    void restart();
    /// The same under other modules.
    void restart(std::vector<SlotWeight> slots);

    /// Another choice over the same tokens and blocks.
    Sequence fork(int choice) const;

private:
    Sequence(const Sequence& other, int choice);
    void set_slots(std::vector<SlotWeight> slots);

    RequestId request_;
    SequenceOrder order_;
    std::vector<TokenId> tokens_;
    int prompt_tokens_;
    int computed_ = 0;
    bool decoding_ = false;
    std::vector<SlotWeight> slots_;
    int modules_from_;
    std::optional<int> logits_from_;
    BlockTable blocks_;
};

}  // namespace attune
