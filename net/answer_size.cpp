#include "net/answer_size.hpp"

#include <algorithm>
#include <string_view>

namespace attune {
namespace {

// The shortest forms that logprobs_json.cpp writes.
constexpr std::uint64_t kPromptScore = std::string_view(R"("1":{"logprob":0.0,"rank":1,"decoded_token":""},)").size();
constexpr std::uint64_t kChatScore = std::string_view(R"({"token":"","logprob":0.0,"bytes":[]},)").size();
constexpr std::uint64_t kPieceLists = std::string_view(R"(0,0.0,"",{},)").size();
constexpr std::uint64_t kPieceScore = std::string_view(R"("":0.0,)").size();

// Tokens of a prompt, where the request says.
std::uint64_t prompt_tokens(const GenerationRequest& request) {
    const auto* ids = std::get_if<TokenPrompt>(&request.prompt);
    return ids == nullptr ? 0 : ids->ids.size();
}

std::uint64_t prompt_text_bytes(const GenerationRequest& request) {
    const auto* text = std::get_if<TextPrompt>(&request.prompt);
    return text == nullptr ? 0 : text->text.size();
}

// Tokens that every choice gets: only stop strings and the context's end could cut them short.
std::uint64_t certain_tokens(const SamplingParams& sampling) {
    if (!sampling.stop.empty()) return 0;
    const int limit = sampling.max_tokens.value_or(0);
    const bool runs_on = sampling.ignore_eos && sampling.stop_token_ids.empty();
    return static_cast<std::uint64_t>(std::max(0, runs_on ? limit : std::min(limit, sampling.min_tokens)));
}

std::uint64_t least_bytes(const ApiRequest& answer, const GenerationRequest& request) {
    const SamplingParams& sampling = request.sampling;
    const auto alternatives = [](const std::optional<int>& count) {
        return static_cast<std::uint64_t>(std::max(1, count.value_or(0)));
    };
    // The first token of a prompt has no score.
    const std::uint64_t scored = std::max<std::uint64_t>(prompt_tokens(request), 1) - 1;
    const bool is_chat = answer.endpoint == Endpoint::chat;
    std::uint64_t piece = 0;
    if (answer.logprobs)
        // A completion's alternatives of one text become one.
        piece = is_chat ? kChatScore * alternatives(sampling.logprobs) : kPieceLists + kPieceScore;
    std::uint64_t choice = certain_tokens(sampling) * piece;
    if (answer.echo) choice += prompt_text_bytes(request) + scored * piece;
    const std::uint64_t scores =
        answer.prompt_logprobs ? scored * kPromptScore * alternatives(sampling.prompt_logprobs) : 0;
    // A completion repeats the prompt's log-probabilities in each of its choices.
    const auto choices = static_cast<std::uint64_t>(answer.choices_per_prompt);
    return choices * choice + (is_chat ? 1 : choices) * scores;
}

}  // namespace

std::uint64_t least_answer_bytes(const ApiRequest& request) {
    std::uint64_t bytes = 0;
    for (const GenerationRequest& one : request.prompts) bytes += least_bytes(request, one);
    return bytes;
}

}  // namespace attune
