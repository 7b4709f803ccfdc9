#pragma once

#include "engine/schedule/sequence.hpp"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace attune {

/// Tokens first, first + 1, ...
inline std::vector<TokenId> token_run(int count, TokenId first = 0) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

struct SequenceSpec {
    int id = 1;  ///< request id and arrival
    int prompt = 1;
    int priority = 0;
    std::vector<SlotWeight> slots = {};
    int modules_from = 0;  ///< all of them
    Combine combine = Combine::sequence;
    VirtualTokens virtual_tokens = {};
    std::vector<CacheWeights> cache_weights = {};
    std::vector<TokenId> tokens = {};  ///< in the place of `prompt` tokens of the id's own
};

inline std::unique_ptr<Sequence> make_sequence(BlockPool& pool, SequenceSpec spec) {
    Sequence::Start start;
    start.request = RequestId{static_cast<std::uint64_t>(spec.id)};
    start.order = {spec.priority, static_cast<std::uint64_t>(spec.id), 0};
    start.prompt = spec.tokens.empty() ? token_run(spec.prompt, 100 * spec.id) : std::move(spec.tokens);
    for (const SlotWeight& slot : spec.slots) start.modules.list.push_back({slot, spec.modules_from});
    start.modules.combine = spec.combine;
    start.modules.virtual_tokens = spec.virtual_tokens;
    start.modules.cache_weights = std::move(spec.cache_weights);
    return std::make_unique<Sequence>(std::move(start), pool);
}

}  // namespace attune
