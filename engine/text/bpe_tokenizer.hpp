#pragma once

#include "engine/text/added_tokens.hpp"
#include "engine/text/bpe_model.hpp"
#include "engine/text/decoder.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/post_processor.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/tokenizer.hpp"

#include <unordered_map>

namespace attune {

/// tokenizer.json as one pipeline: added tokens -> normalizer -> added tokens -> pre-tokenizer -> BPE ->
/// post-processor.
class BpeTokenizer final : public Tokenizer, public std::enable_shared_from_this<BpeTokenizer> {
public:
    /// `json`: the text of tokenizer.json.
    static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json);

    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override;
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens,
                                std::span<const TextSpan> literal) const override;
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
    bool is_special(TokenId id) const override;
    std::string token_bytes(TokenId id) const override;
    int vocab_size() const override { return vocab_size_; }
    std::unique_ptr<Stream> stream(bool skip_special_tokens) const override;

    /// A token's text as the decoder gets it; null when the id is unknown or a special to be skipped.
    const std::string* decoder_input(TokenId id, bool skip_special_tokens, std::string& scratch) const;

private:
    struct Parts;
    explicit BpeTokenizer(BpeModel model) : model_(std::move(model)) {}
    void take_added_tokens(std::vector<AddedToken> added);
    void encode_untouched(std::string_view text, bool at_start, std::size_t offset, std::span<const TextSpan> literal,
                          std::vector<TokenId>& ids) const;
    void encode_normalized(std::string_view text, bool at_start, Pieces& pieces, std::vector<TokenId>& ids) const;

    BpeModel model_;
    std::unique_ptr<const Normalizer> normalizer_;
    std::unique_ptr<const PreTokenizer> pre_tokenizer_;
    std::unique_ptr<const Decoder> decoder_;
    PostProcessor post_processor_;
    std::vector<AddedToken> added_;
    std::unordered_map<TokenId, const AddedToken*> added_by_id_;
    std::unique_ptr<const AddedTokenMatcher> before_normalizer_;
    std::unique_ptr<const AddedTokenMatcher> after_normalizer_;
    bool has_normalized_specials_ = false;
    int vocab_size_ = 0;
};

}  // namespace attune
