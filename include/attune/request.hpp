#pragma once

#include "attune/clock.hpp"
#include "attune/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

/// How a token is drawn. Names and meaning follow vLLM's SamplingParams; ranges are checked by net at the edge and
/// again by validate() in engine/sample before a sequence is made.
struct SamplingParams {
    double temperature = 1.0;  ///< 0 = greedy
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = all
    double min_p = 0.0;
    double repetition_penalty = 1.0;                    ///< over prompt and output
    double presence_penalty = 0.0;                      ///< over output
    double frequency_penalty = 0.0;                     ///< over output
    std::vector<std::pair<TokenId, float>> logit_bias;  ///< added before sampling
    std::optional<std::uint64_t> seed;                  ///< absent: drawn once at admission
    int n = 1;
    std::vector<std::string> stop;
    std::vector<TokenId> stop_token_ids;
    bool include_stop_str_in_output = false;
    bool ignore_eos = false;
    bool skip_special_tokens = true;
    int min_tokens = 0;                  ///< no end or stop id before that many
    std::optional<int> max_tokens;       ///< absent: to the context's end (chat) or 16 (completions), set by net
    std::optional<int> logprobs;         ///< how many alternatives; 0 = the chosen token's only
    std::optional<int> prompt_logprobs;  ///< the same for prompt positions
    bool echo = false;                   ///< the prompt comes back as text first
};

struct TextPrompt {
    std::string text;                ///< the model's raw language: specials in it are parsed
    bool add_special_tokens = true;  ///< BOS and the like by the tokenizer's post-processor
};

struct TokenPrompt {
    std::vector<TokenId> ids;
};

/// Chat input as JSON text already checked for shape by net (an array of message objects, and so on).
/// The vocabulary carries text so that no room needs another's JSON type.
struct ChatPrompt {
    std::string messages_json;
    std::string tools_json;            ///< empty: none
    std::string documents_json;        ///< empty: none
    std::string template_kwargs_json;  ///< an object of allow-listed names; empty: none
    bool add_generation_prompt = true;
    bool continue_final_message = false;
};

using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;

enum class ColdPolicy : std::uint8_t { wait, fallback, upgrade, revise };
/// What `attune-cold` and `attune.cold` say: `warm` when nothing was cold.
enum class ColdWord : std::uint8_t { warm, wait, fallback, upgrade, revise };
enum class Combine : std::uint8_t { sequence, parallel, interpolate };

struct WeightedModule {
    std::string name;
    double weight = 1.0;
};

/// Who asks: decided by net from the key, never from the body.
struct Caller {
    std::string name;  ///< the key's name; empty without keys
    bool admin = true;
};

/// One prompt, `sampling.n` choices. A completions body with several prompts becomes several of these.
struct GenerationRequest {
    RequestId id{};
    std::string model;  ///< base id, a module's name, or "auto"
    Prompt prompt;
    SamplingParams sampling;

    std::vector<WeightedModule> modules;  ///< `attune.modules`; empty: `model` decides
    std::optional<Combine> combine;       ///< none: a composition's own, else sequence
    std::optional<ColdPolicy> cold;
    std::optional<std::int64_t> timeout_ms;
    std::string task_id;
    std::vector<std::string> tags;
    int priority = 0;
    std::optional<std::int64_t> deadline_ms;

    std::string user;        ///< a preference for routing, never a right
    std::string cache_salt;  ///< isolates prefix-cache entries
    Caller caller;
    bool streamed = false;
    TimePoint received{};  ///< when the request's last byte was read
};

}  // namespace attune
