#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string_view>

namespace attune {

/// What `tokenizer.ggml.pre` stands for: GGUF stores that name only, the patterns are those of the Hugging Face
/// originals (tokenizer.json of each family) where known, else those llama.cpp uses for the name.
struct GgufSplit {
    nlohmann::json normalizer;     ///< as in tokenizer.json; null: none
    nlohmann::json pre_tokenizer;  ///< as in tokenizer.json; always ends byte by byte
    bool ignore_merges = false;
    bool adds_bos = false;  ///< what holds when the file has no tokenizer.ggml.add_bos_token
};

/// Nothing for a name that is not known.
std::optional<GgufSplit> gguf_split(std::string_view pre);

}  // namespace attune
