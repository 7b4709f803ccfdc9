#pragma once

#include "attune/error.hpp"
#include "attune/ids.hpp"
#include "attune/request.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace attune {

/// A token with its log-probability (natural log, after penalties off: vLLM's "raw" log-probabilities).
struct ScoredToken {
    TokenId id = 0;
    float logprob = 0;
    int rank = 0;       ///< 1 = most likely
    std::string bytes;  ///< the token's own bytes, possibly part of a UTF-8 character
};

struct TokenScores {
    ScoredToken chosen;
    std::vector<ScoredToken> top;  ///< best first, as many as were asked for
};

/// One generated token. `text` is what became certain with it: it may be empty (inside a character, or while a stop
/// string may still complete) and may hold text of earlier tokens. Concatenated texts are the answer.
struct TokenEvent {
    int choice = 0;
    TokenId id = 0;
    std::string text;
    bool special = false;
    std::optional<TokenScores> scores;
};

/// The weights that made tokens, as the answer's `served` record lists them.
struct AppliedModule {
    ModuleId id;
    double weight = 1.0;
    bool unverified = false;  ///< no checkpoint vouches that it belongs to this base
};

struct ServedEntry {
    int choice = 0;
    std::vector<AppliedModule> modules;  ///< empty = base
    int tokens = 0;
};

struct RouteDecision {
    std::string rule;                       ///< explicit, task_id, user, tag, keyword, regex, classifier, default
    std::vector<std::string> modules;       ///< empty = base
    std::string name = {};                  ///< of the rule that decided; empty for `explicit` and `default`
    std::string matched = {};               ///< what the rule found: the word, task id, tag or user
    double score = 0;                       ///< the classifier's probability
    std::vector<std::string> skipped = {};  ///< rules before it whose modules could not be had
};

enum class FinishReason : std::uint8_t { stop, length, cancelled };
enum class ApplyMode : std::uint8_t { batched, merged, mixed };

/// First event of every admitted request; nothing is sent to the client before it, so its headers can be right.
struct Admitted {
    ColdWord cold = ColdWord::warm;
    RouteDecision route;
    int prompt_tokens = 0;
};

/// Sent once before the first token when `echo` or `prompt_logprobs` asked for it.
struct PromptEvent {
    std::string text;
    std::vector<TokenId> ids;
    /// One per prompt token; the first has no context and so no score. Empty unless scores were asked for.
    std::vector<std::optional<TokenScores>> scores;
    std::vector<std::string> pieces;  ///< each token's own text, for `tokens` and `text_offset`
};

/// From the next token on, `modules` make the tokens of every choice (cold policy upgrade).
struct Switched {
    int base_tokens = 0;  ///< tokens the base made, over all choices
    std::vector<AppliedModule> modules;
};

/// The answer begins again, made by `modules` (cold policy revise): all that was told of it is void but its Admitted,
/// and choices that had ended are open.
struct Revised {
    int base_tokens = 0;  ///< tokens the base made, over all choices
    std::vector<AppliedModule> modules;
};

struct ChoiceFinished {
    int choice = 0;
    FinishReason reason = FinishReason::stop;
    std::string text;  ///< what was still held back
    std::variant<std::monostate, std::string, TokenId> stop_reason;
};

struct Usage {
    int prompt_tokens = 0;
    int completion_tokens = 0;
    int cached_tokens = 0;
};

/// Where several of a request's modules act on the same thing.
struct ModuleOverlap {
    std::vector<std::string> modules;
    std::string layers;                    ///< 0-based and inclusive, "0-11" or "2,5-7"; empty: outside of the layers
    std::vector<std::string> projections;  ///< q_proj, ..., `state` for a layer's output, embed_tokens, norm, ...
    friend bool operator==(const ModuleOverlap&, const ModuleOverlap&) = default;
};

/// Last event of an admitted request.
struct Finished {
    Usage usage;
    std::vector<ServedEntry> served;  ///< tokens add up to usage.completion_tokens
    ApplyMode apply = ApplyMode::batched;
    double queue_ms = 0;
    double ttft_ms = 0;
    std::vector<ModuleOverlap> overlaps = {};  ///< of the modules that acted last
};

/// Last event of a request that failed, before or after admission.
struct Failed {
    Error error;
};

using OutputEvent =
    std::variant<Admitted, PromptEvent, TokenEvent, Switched, Revised, ChoiceFinished, Finished, Failed>;

}  // namespace attune
