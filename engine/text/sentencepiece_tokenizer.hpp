#pragma once

#include "attune/result.hpp"
#include "engine/text/tokenizer_parts.hpp"

#include <string_view>

namespace attune {

/// A bare SentencePiece model (`tokenizer.model`), run by libsentencepiece, with Hugging Face's rules on top: added
/// tokens (those of `config`, the text of tokenizer_config.json or nothing, and the model's own control pieces) are
/// split off first; `legacy` false puts no space before text that follows one; add_bos_token (true unless it says
/// otherwise) and add_eos_token.
Result<TokenizerParts> parts_of_sentencepiece(std::string_view model, std::string_view config);

}  // namespace attune
