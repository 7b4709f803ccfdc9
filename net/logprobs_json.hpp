#pragma once

#include "attune/token_event.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// One item of chat's `logprobs.content`.
void append_chat_logprob(std::string& out, const TokenScores& scores);

/// The `prompt_logprobs` list: null for a position without context, else an object by token id.
void append_prompt_logprobs(std::string& out, const PromptEvent& prompt);

/// The four lists of a completion choice's `logprobs`; offsets run on over take().
class CompletionLogprobs {
public:
    void add(const TokenScores& scores);
    /// A prompt's token, echoed; the first has no scores.
    void add(const std::string& piece, const std::optional<TokenScores>& scores);
    bool empty() const { return tokens_.empty(); }
    std::size_t bytes() const { return offsets_.size() + logprobs_.size() + tokens_.size() + top_.size(); }
    /// Appends the object and starts empty lists.
    void take(std::string& out);

private:
    std::string offsets_;
    std::string logprobs_;
    std::string tokens_;
    std::string top_;
    std::size_t offset_ = 0;  ///< characters before the next token
};

}  // namespace attune
