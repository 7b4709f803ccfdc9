#include "engine/sample/token_counts.hpp"

#include "attune/assert.hpp"

#include <algorithm>

namespace attune {

TokenCounts::TokenCounts(std::span<const TokenId> prompt) {
    std::vector<TokenId> ids(prompt.begin(), prompt.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    entries_.reserve(ids.size() + 256);
    for (const TokenId id : ids) entries_.push_back({id, 0, true});
}

TokenCounts::Entry& TokenCounts::entry(TokenId id) {
    const auto before = [](const Entry& entry, TokenId wanted) { return entry.id < wanted; };
    auto found = std::lower_bound(entries_.begin(), entries_.end(), id, before);
    if (found == entries_.end() || found->id != id) found = entries_.insert(found, {id, 0, false});
    return *found;
}

void TokenCounts::add(TokenId id) { ++entry(id).outputs; }

void TokenCounts::remove(TokenId id) {
    Entry& found = entry(id);
    ATTUNE_ASSERT(found.outputs > 0);
    --found.outputs;
}

}  // namespace attune
