#pragma once

#include "attune/result.hpp"
#include "engine/files/gguf.hpp"
#include "engine/text/tokenizer_parts.hpp"

#include <string>
#include <utility>
#include <vector>

namespace attune {

/// The tokenizer inside a GGUF file (the ggml project's gguf.md, keys tokenizer.ggml.*): kinds "gpt2" (byte-level BPE)
/// and "llama" (SentencePiece BPE: pieces with scores). Other kinds, split names that are not known and contents that
/// contradict themselves are refused, naming the key.
Result<TokenizerParts> parts_of_gguf(const GgufHeader& header);

/// "bos_token" -> its text, for each such id that the file names: what chat templates call the tokens.
Result<std::vector<std::pair<std::string, std::string>>> named_tokens_of_gguf(const GgufHeader& header);

}  // namespace attune
