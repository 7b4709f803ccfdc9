#pragma once

#include "actors/once.hpp"
#include "attune/gateway.hpp"
#include "attune/settings.hpp"
#include "engine/route/route_table.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

using RouteTablePtr = std::shared_ptr<const RouteTable>;

/// What turns a request's prompt into tokens: immutable, shared by all preparers.
struct PrepareParts {
    std::shared_ptr<const Tokenizer> tokenizer;         ///< null: token ids only
    std::shared_ptr<const ChatTemplate> chat_template;  ///< null: no chat
    int vocab_size = 0;
    int max_model_len = 0;  ///< tokens
    int kv_positions = 0;   ///< tokens the whole KV pool holds; 0 = not limited by it
    LimitSettings limits;
};

/// What the router wants to know of a request: first which modules the rules choose, where they do, then its prompt.
struct PrepareTask {
    GenerationRequest request;
    RouteTablePtr routes;                               ///< set: choose by these, and nothing else
    std::shared_ptr<const ChatTemplate> chat_template;  ///< a module's own; null: the base's
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};
using PrepareTaskPtr = std::shared_ptr<const PrepareTask>;

struct PreparedPrompt {
    std::vector<TokenId> ids;
    SamplingParams sampling;            ///< checked; max_tokens and seed are set
    std::optional<RouteChoice> choice;  ///< when the rules were asked: then nothing else is set
};
using Prepared = Result<PreparedPrompt>;
using PreparedPtr = std::shared_ptr<Prepared>;

/// Everything about a request that costs time in proportion to its prompt: routing text, template, tokenising, checks.
Prepared prepare(const PrepareParts& parts, const PrepareTask& task);

/// The prompt as tokens, with every check but the length. `chat_template`: a module's own; null: the base's.
Result<std::vector<TokenId>> tokenize_prompt(const PrepareParts& parts, const Prompt& prompt,
                                             const ChatTemplate* chat_template = nullptr);

/// The text routing rules look at: the last user message of a chat, or a completion's prompt.
std::string routing_text(const Prompt& prompt);

/// `/tokenize` and `/detokenize`.
struct TokenizeTask {
    std::string model;
    Caller caller;
    std::optional<TokenizeRequest> encode;
    std::shared_ptr<const ChatTemplate> chat_template;  ///< the module's own; null: the base's
    OnceReplyPtr<TokenizeResult> encoded;
    std::vector<TokenId> decode;
    OnceReplyPtr<std::string> decoded;
};
using TokenizeTaskPtr = std::shared_ptr<const TokenizeTask>;

/// Calls the task's reply; no exception leaves it.
void run_tokenize(const PrepareParts& parts, const TokenizeTask& task);

}  // namespace attune
