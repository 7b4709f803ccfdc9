#pragma once

#include "engine/text/normalizer.hpp"

namespace attune {

/// SentencePiece's own rules, compiled to a double-array trie: `precompiled_charsmap` is base64 text or binary.
Result<std::unique_ptr<const Normalizer>> parse_precompiled(const nlohmann::json& config);

/// BERT's: control characters go, white space becomes spaces, spaces around Han characters, accents and case go.
Result<std::unique_ptr<const Normalizer>> parse_bert_normalizer(const nlohmann::json& config);

}  // namespace attune
