#pragma once

#include "attune/result.hpp"
#include "engine/text/added_tokens.hpp"
#include "engine/text/decoder.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/post_processor.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/token_model.hpp"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace attune {

/// What a PipelineTokenizer is made of, whatever file it came from.
struct TokenizerParts {
    std::unique_ptr<const TokenModel> model;
    std::vector<AddedToken> added;
    std::unique_ptr<const Normalizer> normalizer;       ///< null: none
    std::unique_ptr<const PreTokenizer> pre_tokenizer;  ///< null: the whole text is one piece
    std::unique_ptr<const Decoder> decoder;
    PostProcessor post_processor;

    /// Makes normalizer, pre-tokenizer and decoder from their settings, written as in tokenizer.json.
    Result<void> parse_steps(const nlohmann::json& normalizer_config, const nlohmann::json& pre_tokenizer_config,
                             const nlohmann::json& decoder_config);
};

/// `json`: the text of tokenizer.json. `config`: the text of tokenizer_config.json, or nothing; added tokens that only
/// its added_tokens_decoder lists are taken too.
Result<TokenizerParts> parts_of_tokenizer_json(std::string_view json, std::string_view config);

}  // namespace attune
