#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <vector>

namespace attune {

/// What tokenizer.json's `post_processor` puts around one text when special tokens are asked for.
struct PostProcessor {
    std::vector<TokenId> before;
    std::vector<TokenId> after;

    /// Offsets, type ids and pairs of texts are of no use here and are not read. Unknown types are refused by name.
    static Result<PostProcessor> parse(const nlohmann::json& config);
};

}  // namespace attune
