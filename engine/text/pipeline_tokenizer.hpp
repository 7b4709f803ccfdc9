#pragma once

#include "engine/text/tokenizer.hpp"
#include "engine/text/tokenizer_parts.hpp"

#include <unordered_map>

namespace attune {

/// The stages of the `tokenizers` library as one pipeline: added tokens -> normalizer -> added tokens -> pre-tokenizer
/// -> model -> post-processor.
class PipelineTokenizer final : public Tokenizer, public std::enable_shared_from_this<PipelineTokenizer> {
public:
    static std::shared_ptr<const Tokenizer> assemble(TokenizerParts parts);
    /// `json`: the text of tokenizer.json.
    static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json);

    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override;
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens,
                                std::span<const TextSpan> literal) const override;
    int min_tokens(std::string_view text) const override;
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
    bool is_special(TokenId id) const override;
    std::string token_bytes(TokenId id) const override;
    int vocab_size() const override { return vocab_size_; }
    /// What stands for text that has no token of its own; -1: such text is lost.
    TokenId unknown_id() const { return parts_.model->unknown_id(); }
    std::unique_ptr<Stream> stream(bool skip_special_tokens) const override;
    Result<std::shared_ptr<const Tokenizer>> with_added(std::vector<AddedToken> more) const override;

    /// A token's text as the decoder gets it; null when the id is unknown or a special to be skipped.
    const std::string* decoder_input(TokenId id, bool skip_special_tokens, std::string& scratch) const;

private:
    PipelineTokenizer(std::shared_ptr<const TokenizerParts> parts, std::vector<AddedToken> added);
    void index_added_tokens();
    std::size_t most_bytes_per_id() const;
    void encode_untouched(std::string_view text, bool at_start, std::size_t offset, std::span<const TextSpan> literal,
                          std::vector<TokenId>& ids) const;
    void encode_normalized(std::string_view text, bool at_start, Pieces& pieces, std::vector<TokenId>& ids) const;
    /// Whether the id is a special token that text must not become.
    bool is_control(TokenId id) const {
        return static_cast<std::size_t>(id) < is_control_.size() && is_control_[static_cast<std::size_t>(id)];
    }
    void spell_out_controls(std::vector<TokenId>& ids, std::size_t first) const;
    void append_spelled(std::string_view token, std::vector<TokenId>& ids) const;

    std::shared_ptr<const TokenizerParts> shared_;  // of all tokenizers that differ in added tokens alone
    const TokenizerParts& parts_;
    std::vector<AddedToken> added_;  // what counts here, instead of the parts' own list
    std::unordered_map<TokenId, const AddedToken*> added_by_id_;
    std::vector<bool> is_control_;  // by the model's ids: special, and not the unknown token
    std::unique_ptr<const AddedTokenMatcher> before_normalizer_;
    std::unique_ptr<const AddedTokenMatcher> after_normalizer_;
    bool has_normalized_specials_ = false;
    int vocab_size_ = 0;
    std::size_t longest_added_ = 0;      // bytes of an added token's content, normalized
    std::size_t most_bytes_per_id_ = 0;  // of untouched text; 0: no bound
};

}  // namespace attune
