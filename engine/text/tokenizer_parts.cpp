#include "engine/text/tokenizer_parts.hpp"

#include <nlohmann/json.hpp>

#include <utility>

namespace attune {

Result<void> TokenizerParts::parse_steps(const nlohmann::json& normalizer_config,
                                         const nlohmann::json& pre_tokenizer_config,
                                         const nlohmann::json& decoder_config) {
    auto made_normalizer = Normalizer::parse(normalizer_config);
    if (!made_normalizer) return made_normalizer.error();
    normalizer = std::move(*made_normalizer);
    auto made_pre_tokenizer = PreTokenizer::parse(pre_tokenizer_config);
    if (!made_pre_tokenizer) return made_pre_tokenizer.error();
    pre_tokenizer = std::move(*made_pre_tokenizer);
    auto made_decoder = Decoder::parse(decoder_config);
    if (!made_decoder) return made_decoder.error();
    decoder = std::move(*made_decoder);
    return {};
}

}  // namespace attune
