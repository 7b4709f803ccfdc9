#pragma once

#include "attune/result.hpp"
#include "engine/text/byte_trie.hpp"
#include "engine/text/token_model.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// What tokenizer.json's `model` holds for Unigram; ids are places in the list.
struct UnigramConfig {
    std::vector<std::pair<std::string, double>> pieces;  ///< with their log probabilities
    std::optional<TokenId> unknown_id;
    bool byte_fallback = false;
};

/// SentencePiece's unigram language model: of all ways to cut a piece, the most likely one (Viterbi). Neighbouring
/// unknown characters are one unknown token.
class UnigramModel final : public TokenModel {
public:
    static Result<UnigramModel> build(UnigramConfig config);

    void encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const override;
    std::optional<TokenId> id_of(std::string_view token) const override;
    std::string_view text_of(TokenId id) const override;
    int id_limit() const override { return static_cast<int>(config_.pieces.size()); }
    TokenId unknown_id() const override { return config_.unknown_id.value_or(-1); }

private:
    UnigramModel() = default;
    void append(std::string_view part, std::vector<TokenId>& ids) const;

    UnigramConfig config_;
    ByteTrie trie_;
    double unknown_score_ = 0;
    std::array<TokenId, 256> fallback_ids_{};  // <0xNN>; -1: no token
};

}  // namespace attune
