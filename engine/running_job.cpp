#include "engine/running_job.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace attune {
namespace {

/// How many alternatives prompt scores need, if the request wants any.
std::optional<int> prompt_alternatives_of(const SamplingParams& params) {
    std::optional<int> top = params.prompt_logprobs;
    if (params.echo && params.logprobs) top = std::max(top.value_or(0), *params.logprobs);
    return top;
}

Sequence first_sequence(const Job& job, std::uint64_t arrival, SequenceModules modules, BlockPool& pool) {
    Sequence::Start start;
    start.request = job.id;
    start.order = {job.priority, arrival, 0};
    start.prompt = job.prompt;
    start.modules = std::move(modules);
    return Sequence(std::move(start), pool);
}

}  // namespace

RunningJob::RunningJob(JobPtr taken, SequenceModules modules, std::uint64_t arrival,
                       std::span<const TokenId> end_tokens, std::shared_ptr<const Tokenizer> tokens_to_text,
                       BlockPool& pool, TimePoint now)
    : job(std::move(taken)),
      tokenizer(std::move(tokens_to_text)),
      end_ids(end_tokens.begin(), end_tokens.end()),
      prompt_top(prompt_alternatives_of(job->sampling)),
      expects_revision(job->revise),
      received(job->received == TimePoint{} ? now : job->received) {
    end_ids.insert(end_ids.end(), params().stop_token_ids.begin(), params().stop_token_ids.end());
    set_modules(std::move(job->modules));
    start(arrival, std::move(modules), pool);
}

void RunningJob::start(std::uint64_t arrival, SequenceModules modules, BlockPool& pool) {
    auto rules = expects_revision && job->constraint ? job->constraint->clone() : std::move(job->constraint);
    choices.push_back(std::make_unique<Choice>(first_sequence(*job, arrival, std::move(modules), pool), params(),
                                               tokenizer.get(), std::move(rules)));
    if (prompt_top) {
        prompt_scores.reserve(job->prompt.size());
        prompt_scores.emplace_back();  // the first token has no context to be scored in
        choices[0]->sequence.want_logits_from(0);
    }
}

void RunningJob::begin_again(std::vector<JobModule> modules, SequenceModules acting, BlockPool& pool) {
    for (const auto& choice : choices) revised_.insert(revised_.end(), choice->served.begin(), choice->served.end());
    const std::uint64_t arrival = choices[0]->sequence.order().arrival;
    choices.clear();
    prompt_scores.clear();
    prompt_told = false;
    expects_revision = false;
    set_modules(std::move(modules));
    start(arrival, std::move(acting), pool);
}

Choice* RunningJob::open_choice(int index) {
    if (index >= static_cast<int>(choices.size())) return nullptr;
    Choice* choice = choices[static_cast<std::size_t>(index)].get();
    return choice->open ? choice : nullptr;
}

void RunningJob::fork_choices() {
    choices.reserve(static_cast<std::size_t>(params().n));
    for (int i = 1; i < params().n; ++i) choices.push_back(choices[0]->fork(i, params(), tokenizer.get()));
}

bool RunningJob::has_blocks() const {
    return std::any_of(choices.begin(), choices.end(),
                       [](const auto& choice) { return choice->sequence.has_blocks(); });
}

int RunningJob::open_choices() const {
    return static_cast<int>(
        std::count_if(choices.begin(), choices.end(), [](const auto& choice) { return choice->open; }));
}

void RunningJob::tell(OutputEvent event) noexcept {
    try {
        job->sink->push(std::move(event));
    } catch (...) {  // NOLINT(bugprone-empty-catch): the client's side is gone, and nobody else may feel it
    }
}

void RunningJob::tell_prompt() {
    prompt_told = true;
    choices[0]->sequence.want_logits_from(std::nullopt);
    if (!params().echo && !prompt_top) return;
    PromptEvent event;
    event.ids = job->prompt;
    event.scores = std::move(prompt_scores);
    if (tokenizer != nullptr) {
        // Piece by piece, so that the pieces join to the text whatever a token's share of a character is.
        const auto stream = tokenizer->stream(params().skip_special_tokens);
        event.pieces.reserve(event.ids.size());
        for (const TokenId id : event.ids) event.pieces.push_back(stream->push(id));
        event.pieces.back() += stream->flush();
        for (const std::string& piece : event.pieces) event.text += piece;
    }
    tell(std::move(event));
}

void RunningJob::forget_prompt_scores() {
    if (!scores_prompt()) return;
    prompt_scores.resize(1);
    choices[0]->sequence.want_logits_from(0);
}

void RunningJob::set_modules(std::vector<JobModule> modules) {
    job->modules = std::move(modules);
    applied_.clear();
    for (const JobModule& module : job->modules) {
        if (module.applied.weight != 0) applied_.push_back(module.applied);
    }
}

std::string RunningJob::weights_in_words() const {
    if (applied_.empty()) return "the base model";
    std::string words = applied_.size() == 1 ? "module" : "modules";
    for (std::size_t i = 0; i < applied_.size(); ++i) words += (i == 0 ? " \"" : ", \"") + applied_[i].id.name + "\"";
    return words;
}

int RunningJob::completion_tokens() const {
    int tokens = 0;
    for (const ServedEntry& entry : revised_) tokens += entry.tokens;
    for (const auto& choice : choices) tokens += choice->generated_tokens();
    return tokens;
}

Finished RunningJob::finished() const {
    Finished out;
    out.usage = {prompt_tokens(), completion_tokens(), cached_tokens};
    for (int i = 0; i < params().n; ++i) {
        const auto index = static_cast<std::size_t>(i);
        std::ranges::copy_if(revised_, std::back_inserter(out.served),
                             [i](const ServedEntry& entry) { return entry.choice == i; });
        if (index < choices.size() && !choices[index]->served.empty()) {
            const auto& served = choices[index]->served;
            out.served.insert(out.served.end(), served.begin(), served.end());
        } else {
            out.served.push_back({i, applied_, 0});  // no token came: the weights that would have made it
        }
    }
    out.apply = apply.value_or(ApplyMode::batched);
    out.overlaps = overlaps;
    if (started) out.queue_ms = milliseconds_between(received, *started);
    if (first_token) out.ttft_ms = milliseconds_between(received, *first_token);
    return out;
}

ScoredToken RunningJob::with_bytes(ScoredToken token) const {
    if (tokenizer != nullptr) token.bytes = tokenizer->token_bytes(token.id);
    return token;
}

TokenScores RunningJob::with_bytes(TokenScores scores) const {
    scores.chosen = with_bytes(std::move(scores.chosen));
    for (ScoredToken& token : scores.top) token = with_bytes(std::move(token));
    return scores;
}

}  // namespace attune
