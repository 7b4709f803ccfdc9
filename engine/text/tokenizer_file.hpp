#pragma once

#include "attune/result.hpp"
#include "engine/text/added_tokens.hpp"
#include "engine/text/bpe_model.hpp"

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

namespace attune {

/// tokenizer.json taken apart: vocabulary and merges apart from the rest, as they are almost all of the file.
struct TokenizerFile {
    BpeConfig model;             ///< vocabulary and unknown token serve the other kinds, too
    std::vector<double> scores;  ///< of a Unigram vocabulary, one for each entry
    std::vector<AddedToken> added;
    nlohmann::json rest;  ///< the document without vocabulary and merges

    static Result<TokenizerFile> parse(std::string_view text);
};

}  // namespace attune
