#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/json_text.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace attune {

struct AddedTokenFact {
    TokenId id = -1;
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
    bool normalized = false;
    bool special = false;
    friend bool operator==(const AddedTokenFact&, const AddedTokenFact&) = default;
};

using AddedTokenFacts = std::map<std::string, AddedTokenFact>;  // by content

/// What decides the ids of a tokenizer.json, for telling whether two files mean the same. Libraries write one tokenizer
/// in several ways: other key order, merges as "a b" or ["a", "b"], defaults written out or left out.
struct TokenizerFacts {
    std::map<std::string, std::uint64_t> parts;  ///< a digest for each of model, normalizer, pre_tokenizer, ...
    AddedTokenFacts added;
    std::string sha256;  ///< of the file's bytes as they were read
};

/// Reads the file as a stream: a vocabulary of 20 MB is never in memory. Errors name `name`, not the path.
Result<TokenizerFacts> read_tokenizer_facts(const ReadOnlyFile& file, const std::string& name);
/// Its added tokens alone. Libraries write them first, so that hardly more than these is read.
Result<AddedTokenFacts> read_added_tokens(const ReadOnlyFile& file, const std::string& name);

/// `added_tokens_decoder` of a tokenizer_config.json; empty when it has none.
AddedTokenFacts added_tokens_decoder(const OrderedJson& config);

}  // namespace attune
