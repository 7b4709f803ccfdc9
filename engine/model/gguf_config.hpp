#pragma once

#include "attune/ids.hpp"
#include "engine/files/gguf.hpp"
#include "engine/model/model_config.hpp"

#include <filesystem>
#include <vector>

namespace attune {

/// The model a GGUF file describes (keys as in the ggml project's gguf.md, meaning as llama.cpp's loader gives them).
/// Architectures: llama (with a sliding window: mistral), qwen2, qwen3. What the metadata leaves to the tensors is read
/// off their shapes and names: vocabulary, biases, tied head. Errors name the file and the key or tensor:
/// Errc::unsupported for what would change the result, Errc::invalid_argument for what is missing or malformed.
/// `rope.factors` stays empty.
Result<ModelConfig> parse_gguf_config(const GgufHeader& header);

/// The same from a file, with `rope.factors` from its tensor rope_freqs.weight.
Result<ModelConfig> read_gguf_config(const std::filesystem::path& file);

/// tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id, each once.
Result<std::vector<TokenId>> gguf_end_tokens(const GgufHeader& header);

}  // namespace attune
