#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// A run of prompt text and whether special tokens may be recognised in it. User text in a chat never carries them
/// (DESIGN rule 7). The whole text is normalised and split as one string; the flag only decides which matches count.
struct TextSpan {
    std::size_t begin = 0;  ///< byte offsets into the text
    std::size_t end = 0;
    bool literal = false;  ///< true: added tokens with special = true are plain text here
};

struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
    bool normalized = false;
    bool special = false;
};

/// Immutable; every method may be called from any thread. Ids equal those of the `tokenizers` library.
class Tokenizer {
public:
    /// `model` is a GGUF file or a Hugging Face folder, of which the first that is there is taken: tokenizer.json,
    /// tokenizer.model (SentencePiece), vocab.json and merges.txt; with tokenizer_config.json beside it when there.
    /// Errc::not_found when there is no tokenizer of any kind.
    static Result<std::shared_ptr<const Tokenizer>> open(const std::filesystem::path& model);
    virtual ~Tokenizer() = default;

    /// text must be valid UTF-8. `add_special_tokens`: what the post-processor adds.
    virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const = 0;
    /// With provenance: `literal` spans are ascending and do not overlap; text outside of them is not literal.
    virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens,
                                        std::span<const TextSpan> literal) const = 0;

    /// At least so many ids come of `text`, seen without encoding it: its bytes by those of the longest token. 0 where
    /// the tokenizer may drop or shorten text at will.
    virtual int min_tokens(std::string_view text) const = 0;

    virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
    virtual bool is_special(TokenId id) const = 0;
    /// The bytes one token stands for, possibly a part of a character; an unknown id gives nothing.
    virtual std::string token_bytes(TokenId id) const = 0;
    virtual int vocab_size() const = 0;

    /// Text of a growing token list, released as soon as it is certain and never inside a character. A value: copied
    /// for n > 1 and when a step may be rolled back.
    class Stream {
    public:
        virtual ~Stream() = default;
        virtual std::string push(TokenId id) = 0;
        /// What is left at the end; an unfinished character becomes one U+FFFD.
        virtual std::string flush() = 0;
        virtual std::unique_ptr<Stream> clone() const = 0;
    };
    virtual std::unique_ptr<Stream> stream(bool skip_special_tokens) const = 0;

    /// This tokenizer with further added tokens; vocabulary, merges and all other steps are shared. Errors name a token
    /// whose id or content is taken: Errc::invalid_argument; Errc::unsupported where none can be added.
    virtual Result<std::shared_ptr<const Tokenizer>> with_added(std::vector<AddedToken> more) const = 0;
};

}  // namespace attune
