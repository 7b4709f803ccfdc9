#pragma once

#include "attune/ids.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace attune {

/// Which tokens a choice's prompt and output hold, and how often: what penalties go by. Only distinct tokens are kept.
class TokenCounts {
public:
    struct Entry {
        TokenId id = 0;
        std::int32_t outputs = 0;
        bool in_prompt = false;
    };

    explicit TokenCounts(std::span<const TokenId> prompt);

    /// Output tokens; remove() undoes one add().
    void add(TokenId id);
    void remove(TokenId id);

    /// Ascending by id. An entry that was removed again may stay with outputs = 0.
    std::span<const Entry> entries() const { return entries_; }

private:
    Entry& entry(TokenId id);
    std::vector<Entry> entries_;
};

}  // namespace attune
