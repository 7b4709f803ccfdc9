#pragma once

#include "attune/result.hpp"
#include "engine/text/tokenizer_parts.hpp"

#include <string_view>

namespace attune {

/// The older form of byte-level BPE: vocab.json and merges.txt. How text is split stands in neither, so only the
/// tokenizer classes GPT2Tokenizer and Qwen2Tokenizer of `config` (tokenizer_config.json) are taken; others are refused
/// by name.
Result<TokenizerParts> parts_of_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                                 std::string_view config);

}  // namespace attune
