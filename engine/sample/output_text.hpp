#pragma once

#include "attune/ids.hpp"
#include "attune/request.hpp"
#include "engine/text/tokenizer.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace attune {

/// One choice's visible text: tokens in, text out as soon as it is certain. The longest tail that may still become a
/// stop string is held back and sent when it does not.
class OutputText {
public:
    struct Piece {
        std::string text;
        std::optional<std::string> stop;  ///< the stop string that ended the text
    };

    /// `tokenizer` may be null: every text stays empty and no stop string can match.
    OutputText(const Tokenizer* tokenizer, const SamplingParams& params);

    /// After a piece with a stop nothing more may come but finish().
    Piece push(TokenId id);
    /// A token whose text is not shown (the end or stop token).
    void push_hidden() { ++tokens_; }
    /// What was still held back.
    std::string finish();

    /// The output is `remaining` again. Text already handed out cannot be taken back; it is not handed out twice.
    void rollback(std::span<const TokenId> remaining);

private:
    std::string decode(TokenId id);
    std::size_t held_bytes() const;
    std::string release(std::size_t bytes);

    const Tokenizer* tokenizer_;
    bool skip_special_tokens_;
    std::vector<std::string> stops_;
    bool include_stop_;
    int min_tokens_;

    std::unique_ptr<Tokenizer::Stream> stream_;
    std::string unsent_;
    std::size_t sent_bytes_ = 0;
    std::size_t sent_ahead_ = 0;  // handed out before a rollback; dropped when it comes again
    int tokens_ = 0;
};

}  // namespace attune
