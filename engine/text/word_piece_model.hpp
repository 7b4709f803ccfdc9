#pragma once

#include "attune/result.hpp"
#include "engine/text/byte_trie.hpp"
#include "engine/text/token_model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace attune {

/// What tokenizer.json's `model` holds for WordPiece.
struct WordPieceConfig {
    std::vector<std::pair<std::string, TokenId>> vocabulary;
    std::string unknown_token = "[UNK]";
    std::string continuing_prefix = "##";
    std::size_t longest_word = 100;  ///< characters; longer words are unknown
};

/// Greedy longest match from the left; a word that does not come apart into entries is one unknown token.
class WordPieceModel final : public TokenModel {
public:
    static Result<WordPieceModel> build(WordPieceConfig config);

    void encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const override;
    std::optional<TokenId> id_of(std::string_view token) const override;
    std::string_view text_of(TokenId id) const override;
    int id_limit() const override { return static_cast<int>(texts_.size()); }
    TokenId unknown_id() const override { return unknown_id_; }

private:
    WordPieceModel() = default;
    bool encode_word(std::string_view word, std::vector<TokenId>& ids) const;

    std::vector<std::string> texts_;
    ByteTrie all_;
    ByteTrie continuing_;  // entries that begin with the prefix, without it
    TokenId unknown_id_ = 0;
    std::size_t longest_word_ = 0;
};

}  // namespace attune
