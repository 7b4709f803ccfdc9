#pragma once

#include "actors/once.hpp"
#include "actors/prompt_text.hpp"
#include "attune/gateway.hpp"
#include "attune/settings.hpp"
#include "engine/route/route_table.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <atomic>
#include <functional>
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

/// A routes file with what its words were compiled to.
struct RouteSet {
    RouteFile file;
    CompiledRoutes compiled;
};
using RouteSetPtr = std::shared_ptr<const RouteSet>;

/// Where rules come from; the server's start gives the functions, which may read files.
struct RouteSource {
    std::function<Result<RouteFile>()> read;                          ///< null: no file
    std::function<Result<RouteFile>(const std::string& json)> parse;  ///< null: PUT is not offered
    /// Changes when the file, or the classifier's that it named, does; null: nothing is watched.
    std::function<std::string(const RouteFile& last_read)> stamp;
    std::string name;  ///< of the file, without folder
};

/// What blocks on the way of new rules, for a preparer: a look whether the file has changed, or a body to check.
struct RoutesTask {
    std::optional<std::string> json;  ///< set: these, else the file
    RouteSetPtr last_read;            ///< what the file said last; null: nothing yet
    std::string stamp;                ///< of that time
};
using RoutesTaskPtr = std::shared_ptr<const RoutesTask>;

struct RoutesNews {
    bool from_file = true;
    bool changed = true;  ///< false: the file is as it was, and `rules` mean nothing
    std::string stamp;
    Result<RouteSetPtr> rules = RouteSetPtr{};
};
using RoutesNewsPtr = std::shared_ptr<const RoutesNews>;

/// Reads, checks and compiles; no exception leaves them.
RoutesNewsPtr read_rules(const RouteSource& source, const RouteSetPtr& last_read);
RoutesNewsPtr look_for_rules(const RouteSource& source, const RoutesTask& task);

/// What the router wants to know of a request: first which modules the rules choose, where they do, then its prompt.
struct PrepareTask {
    GenerationRequest request;
    RouteTablePtr routes;                  ///< set: choose by these, and nothing else
    std::vector<std::size_t> passed_over;  ///< choices whose modules could not be had
    std::shared_ptr<Classifier> learner;   ///< set: the request chose this label itself
    std::string label;
    PromptText text;
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

/// The prompt as tokens, with every check but the length.
Result<std::vector<TokenId>> tokenize_prompt(const PrepareParts& parts, const Prompt& prompt);

/// One step of the task's learner; afterwards, so that no answer waits for it.
void learn(const PrepareTask& task);

/// The text routing rules look at: the last user message of a chat, or a completion's prompt.
std::string routing_text(const Prompt& prompt);

/// `/tokenize` and `/detokenize`.
struct TokenizeTask {
    std::string model;
    Caller caller;
    std::optional<TokenizeRequest> encode;
    PromptText text;
    OnceReplyPtr<TokenizeResult> encoded;
    std::vector<TokenId> decode;
    OnceReplyPtr<std::string> decoded;
};
using TokenizeTaskPtr = std::shared_ptr<const TokenizeTask>;

/// Calls the task's reply; no exception leaves it.
void run_tokenize(const PrepareParts& parts, const TokenizeTask& task);

}  // namespace attune
