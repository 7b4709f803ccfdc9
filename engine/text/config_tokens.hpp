#pragma once

#include "attune/result.hpp"
#include "engine/text/added_tokens.hpp"

#include <map>
#include <string_view>

namespace attune {

/// tokenizer_config.json's added_tokens_decoder, by id. `config`: the file's text, or nothing.
Result<std::map<TokenId, AddedToken>> config_tokens(std::string_view config);

/// Ids of added tokens are bounded, as a model's rows are.
Result<void> check_added_ids(const std::vector<AddedToken>& added);

}  // namespace attune
