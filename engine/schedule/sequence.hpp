#pragma once

#include "attune/ids.hpp"
#include "attune/token_event.hpp"
#include "engine/kv/block_table.hpp"
#include "engine/schedule/batch.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

/// A module of a sequence.
struct SequenceModule {
    SlotWeight slot;
    int from = 0;  ///< first position it touches: 0, or where an aLoRA was invoked
    friend bool operator==(const SequenceModule&, const SequenceModule&) = default;
};

/// Positions that a module puts before the first real token: a prefix lies in the cache already, a soft prompt is read
/// like tokens.
struct VirtualTokens {
    int count = 0;
    const BlockTable* prefix = nullptr;  ///< holds their keys and values, borrowed; null: a soft prompt, or none
};

/// What blocks are shared by beside their tokens, as text (BlockKey::weights), for blocks that end behind `from`: an
/// aLoRA's before its invocation are the base's.
struct CacheWeights {
    int from = 0;
    std::string text;
    friend bool operator==(const CacheWeights&, const CacheWeights&) = default;
};

/// Everything that acts on a sequence.
struct SequenceModules {
    std::vector<SequenceModule> list;  ///< in the order their states act; weight 0 is left out
    Combine combine = Combine::sequence;
    VirtualTokens virtual_tokens;
    std::vector<CacheWeights> cache_weights = {};  ///< ascending, the first from 0; empty: its blocks are not shared
};

/// One choice of a request as the scheduler sees it: tokens, how many of them have their keys and values in the cache,
/// and in which blocks. What follows from the tokens (text, penalties, constraint) is the engine's.
///
/// Positions count the modules' virtual tokens, then the real ones; only `tokens()` and `generated()` are without them.
/// A decode and a prompt chunk are the same thing here: positions [computed, length) are pending. So a preempted
/// sequence simply has everything pending again, its generated tokens included.
class Sequence {
public:
    struct Start {
        RequestId request{};
        SequenceOrder order;
        std::vector<TokenId> prompt;
        SequenceModules modules;
    };

    Sequence(Start start, BlockPool& pool);

    RequestId request() const { return request_; }
    int choice() const { return order_.choice; }
    const SequenceOrder& order() const { return order_; }

    std::span<const TokenId> tokens() const { return tokens_; }
    std::span<const TokenId> generated() const { return tokens().subspan(static_cast<std::size_t>(prompt_tokens_)); }
    /// What a step reads at a position: a token, or -1 - i for virtual token i.
    TokenId token_at(int position) const;
    int virtual_tokens() const { return modules_.virtual_tokens.count; }
    int length() const { return virtual_tokens() + static_cast<int>(tokens_.size()); }
    int prompt_tokens() const { return prompt_tokens_; }
    int computed() const { return computed_; }
    int pending() const { return length() - computed_; }
    /// It has read its whole context once since it (re)started; from then on it decodes.
    bool is_decoding() const { return decoding_; }

    const SequenceModules& modules() const { return modules_; }
    const BlockTable& blocks() const { return blocks_; }
    bool has_blocks() const { return !blocks_.blocks().empty(); }
    /// How many free blocks it takes to hold every pending position alone.
    int missing_blocks() const;

    /// Positions from here on want their logits when their row is computed; without a wish only the last token does.
    int logits_from() const { return logits_from_ ? virtual_tokens() + *logits_from_ : length() - 1; }
    /// `token`: counted without virtual tokens.
    void want_logits_from(std::optional<int> token) { logits_from_ = token; }

    /// Tokens that were sampled or guessed.
    void append(std::span<const TokenId> tokens);
    void append(TokenId token) { append(std::span(&token, 1)); }
    /// Forgets the last n generated tokens, their keys and values, and the blocks only they needed. When no token is
    /// appended before the next step, that step computes the last remaining token again, for its logits.
    void rollback(int n);

    /// Blocks for every pending position, held alone. Before that it takes over what is there: a prefix, then cached
    /// blocks up to the first position whose logits are wanted, so at least one is computed. False when blocks ran out.
    [[nodiscard]] bool reserve(std::vector<BlockCopy>& copies);
    /// Its full blocks may be shared from now on: what they led to was finite.
    void cache_blocks();
    /// Neither gives blocks to the cache nor takes any until it restarts: what it has computed is not what its weights
    /// would make now.
    void stop_caching();
    /// How its modules will be put on the base. Blocks are shared within one mode; what is begun in one and goes on in
    /// another is nobody else's from there on.
    void set_apply(ApplyMode mode);
    bool can_cache() const { return caching_ && !modules_.cache_weights.empty(); }
    /// Real tokens that the cache saved since it (re)started.
    int cached_tokens() const { return cached_tokens_; }
    /// A step computed the next `rows` pending positions.
    void advance(int rows);
    /// Drops keys, values and blocks; all positions are pending again.
    void restart();
    /// The same under other modules.
    void restart(SequenceModules modules);

    /// Its modules may leave their slots: it is not to be scheduled before restart(modules).
    void park() { parked_ = true; }
    bool is_parked() const { return parked_; }
    /// Sequences that were admitted before it, though it was their elder, since it had no room.
    int passed() const { return passed_; }
    void note_passed(int passed) { passed_ = passed; }

    /// Another choice over the same tokens and blocks.
    Sequence fork(int choice) const;

private:
    Sequence(const Sequence& other, int choice);
    void set_modules(SequenceModules modules);
    /// Blocks of a prefix that lie in every such sequence; caching begins behind them.
    int prefix_blocks() const;
    std::optional<BlockId> parent_of(int block) const;
    /// What the tokens of a full block are cached under.
    template <class Use>
    auto with_key(int block, std::optional<BlockId> parent, Use use) const;
    /// The cached block that can stand as number `block`, behind `parent`.
    std::optional<BlockId> find_cached(int block, std::optional<BlockId> parent) const;
    void take_cached();

    RequestId request_;
    SequenceOrder order_;
    std::vector<TokenId> tokens_;
    int prompt_tokens_;
    int computed_ = 0;
    bool decoding_ = false;
    bool parked_ = false;
    int passed_ = 0;
    SequenceModules modules_;
    std::optional<int> logits_from_;
    BlockTable blocks_;
    int cached_blocks_ = 0;  // of blocks_, from the start: those in the cache, and a prefix's before them
    int cached_tokens_ = 0;
    bool caching_ = true;
    ApplyMode cache_apply_ = ApplyMode::batched;
};

}  // namespace attune
