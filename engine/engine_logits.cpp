// From the rows of a step whose logits are wanted to scores and tokens: the part of the engine behind the model.

#include "engine/engine_impl.hpp"
#include "engine/kernels/worker_pool.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

/// Rows of logits made at a time: 64 rows of 150k floats are 38 MB, a whole prompt's would be gigabytes.
constexpr std::int64_t kLogitRows = 64;

bool holds(const std::vector<TokenId>& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// hidden[rows], or hidden itself when that is every row.
torch::Tensor pick_rows(const torch::Tensor& hidden, std::span<std::int32_t> rows) {
    if (static_cast<std::int64_t>(rows.size()) == hidden.size(0)) return hidden;
    const auto index =
        torch::from_blob(rows.data(), {static_cast<std::int64_t>(rows.size())}, torch::kInt32).to(hidden.device());
    return hidden.index_select(0, index);
}

}  // namespace

void EngineImpl::list_logit_rows(const StepPlan& plan) {
    logit_rows_.clear();
    for (const ScheduledRows& rows : plan.rows) {
        const Sequence& sequence = *rows.sequence;
        const int end = sequence.computed() + rows.rows;
        for (int position = std::max(sequence.computed(), sequence.logits_from()); position < end; ++position)
            logit_rows_.push_back({sequence.request(), sequence.choice(), position - sequence.virtual_tokens(),
                                   position + 1 == sequence.length()});
    }
}

/// Tokens that the job's modules know beyond the base's vocabulary.
int EngineImpl::added_ids(const std::vector<JobModule>& modules) const {
    int count = 0;
    for (const JobModule& module : modules) {
        const Module* acting = module.applied.weight != 0 ? slots_.module(module.slot) : nullptr;
        if (acting != nullptr) count = std::max(count, acting->added_ids());
    }
    return count;
}

void EngineImpl::read_logits(const torch::Tensor& hidden, StepReport& report) {
    const auto vocab = static_cast<std::size_t>(shape_.vocab_size);
    for (std::size_t first = 0; first < logit_rows_.size(); first += kLogitRows) {
        const std::size_t count = std::min(logit_rows_.size() - first, static_cast<std::size_t>(kLogitRows));
        const auto rows = std::span(batch_.logit_rows).subspan(first, count);
        const torch::Tensor picked = pick_rows(hidden, rows);
        const torch::Tensor logits =
            model_->logits(picked, batch_, slots_, rows).to(torch::kCPU, torch::kFloat32).contiguous();
        const float* values = logits.const_data_ptr<float>();  // [count, vocab]
        const torch::Tensor beyond = new_token_logits(picked, first, rows);
        draws_.clear();
        if (!beyond.defined()) draw_ahead(values, first, count);
        std::size_t next_draw = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const LogitRow& row = logit_rows_[first + i];
            const std::span<const float> known(values + i * vocab, vocab);
            Sample* drawn = nullptr;
            if (next_draw < draws_.size() && draws_[next_draw].row == i) drawn = &draws_[next_draw++].sample;
            use_row(row, beyond.defined() ? with_new_tokens(row, known, beyond[static_cast<std::int64_t>(i)]) : known,
                    drawn, report);
        }
    }
}

/// Draws on all threads for rows [first, first + count) that give one choice its next token: a token is a function of
/// its row and its choice alone, and nothing that other rows of this step do changes either but by ending the choice.
void EngineImpl::draw_ahead(const float* logits, std::size_t first, std::size_t count) {
    const auto vocab = static_cast<std::size_t>(shape_.vocab_size);
    for (std::size_t i = 0; i < count; ++i) {
        const LogitRow& row = logit_rows_[first + i];
        RunningJob* running = find(row.request);
        if (!row.is_last || running == nullptr || running->scores_prompt() || running->max_tokens() == 0) continue;
        const Choice* choice = running->open_choice(row.choice);
        if (choice != nullptr && !is_first_of_many(*running, *choice))
            draws_.push_back({i, context_of(*running, *choice), {}});
    }
    parallel_for(static_cast<std::int64_t>(draws_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (Draw& draw :
             std::span(draws_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
            draw.sample = thread_sampler().sample({logits + draw.row * vocab, vocab}, draw.context);
    });
}

/// [rows, the most new tokens that one of their jobs knows]; undefined in most steps, in which none knows any.
torch::Tensor EngineImpl::new_token_logits(const torch::Tensor& hidden, std::size_t first,
                                           std::span<const std::int32_t> rows) {
    int count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (const RunningJob* running = find(logit_rows_[first + i].request))
            count = std::max(count, added_ids(running->job->modules));
    if (count == 0) return {};
    return slots_.new_token_logits(hidden, batch_, rows, count).to(torch::kCPU).contiguous();
}

/// A job sees the tokens of its own modules only.
std::span<const float> EngineImpl::with_new_tokens(const LogitRow& row, std::span<const float> known,
                                                   const torch::Tensor& beyond) {
    const RunningJob* running = find(row.request);
    const auto count = static_cast<std::size_t>(running != nullptr ? added_ids(running->job->modules) : 0);
    if (count == 0) return known;
    wide_row_.assign(known.begin(), known.end());
    const float* more = beyond.const_data_ptr<float>();
    wide_row_.insert(wide_row_.end(), more, more + count);
    return wide_row_;
}

/// `drawn`: the choice's token where it is known already.
void EngineImpl::use_row(const LogitRow& row, std::span<const float> logits, Sample* drawn, StepReport& report) {
    RunningJob* running = find(row.request);
    if (running == nullptr) return;  // an earlier row of this step ended it
    if (running->scores_prompt() && !score_prompt_row(*running, row.token, logits)) return;
    if (!row.is_last) return;

    Choice* choice = running->open_choice(row.choice);
    if (choice == nullptr) return;
    if (running->max_tokens() == 0) {
        finish_prompt_only(*running);
    } else if (is_first_of_many(*running, *choice)) {
        draw_first_tokens(*running, logits, report);
    } else {
        use_sample(*running, *choice, drawn != nullptr ? std::move(*drawn) : draw(*running, *choice, logits), report);
    }
}

/// One prompt, several choices that are yet to part.
bool EngineImpl::is_first_of_many(const RunningJob& running, const Choice& choice) {
    return choice.generated_tokens() == 0 && running.choices.size() == 1 && running.params().n > 1;
}

/// The row of the prompt's token `token` scores the prompt's next token. False when the job ended by it.
bool EngineImpl::score_prompt_row(RunningJob& running, int token, std::span<const float> logits) {
    if (token == running.next_scored_row() && !running.is_prompt_scored()) {
        const TokenId next = running.job->prompt[static_cast<std::size_t>(token) + 1];
        auto scores = thread_sampler().score(logits, next, running.prompt_alternatives());
        if (!scores) {
            fail_non_finite(running, "the logits of a prompt token");
            return false;
        }
        running.prompt_scores.push_back(running.with_bytes(*std::move(scores)));
        // Also after a preemption nothing is scored twice.
        running.choices[0]->sequence.want_logits_from(running.next_scored_row());
    }
    if (running.is_prompt_scored()) {
        running.tell_prompt();
        running.last_told = options_.now();
    }
    return true;
}

/// One prompt, n choices: the others share its blocks from here on and draw from the same row.
void EngineImpl::draw_first_tokens(RunningJob& running, std::span<const float> logits, StepReport& report) {
    running.fork_choices();
    for (int i = 1; i < running.params().n; ++i) scheduler_.add_fork(running.open_choice(i)->sequence);
    const RequestId id = running.id();
    const int n = running.params().n;
    for (int i = 0; i < n; ++i) {
        RunningJob* alive = find(id);
        if (alive == nullptr) return;
        Choice& choice = *alive->open_choice(i);
        use_sample(*alive, choice, draw(*alive, choice, logits), report);
    }
}

SampleContext EngineImpl::context_of(const RunningJob& running, const Choice& choice) {
    return {.params = running.params(),
            .seed = *running.params().seed,
            .choice = choice.sequence.choice(),
            .token_index = choice.generated_tokens(),
            .end_ids = running.end_ids,
            .counts = choice.counts ? &*choice.counts : nullptr,
            .constraint = choice.constraint.get()};
}

/// Its scratch is as wide as the vocabulary, so each thread keeps its own.
Sampler& EngineImpl::thread_sampler() const {
    static thread_local Sampler sampler(shape_.vocab_size);
    return sampler;
}

Sample EngineImpl::draw(const RunningJob& running, const Choice& choice, std::span<const float> logits) const {
    return thread_sampler().sample(logits, context_of(running, choice));
}

void EngineImpl::use_sample(RunningJob& running, Choice& choice, Sample sample, StepReport& report) {
    switch (sample.outcome) {
        case Sample::Outcome::token:
            choice.sequence.cache_blocks();
            accept_token(running, choice, std::move(sample), report);
            break;
        case Sample::Outcome::non_finite:
            fail_non_finite(running, "the logits");
            break;
        case Sample::Outcome::nothing_allowed:
            fail(running, make_error(Errc::invalid_argument,
                                     "no token is left that the request's constraint and min_tokens allow"));
            break;
    }
}

void EngineImpl::accept_token(RunningJob& running, Choice& choice, Sample sample, StepReport& report) {
    const SamplingParams& params = running.params();
    const TokenId id = sample.id;
    const bool is_end = !params.ignore_eos && holds(options_.end_tokens, id);
    const bool is_stop = holds(params.stop_token_ids, id);
    // As in vLLM: the token that ends a choice counts, but its text is not part of the answer.
    OutputText::Piece piece = choice.append(id, (is_end || is_stop) && !params.include_stop_str_in_output);
    choice.record(running.applied());

    const TimePoint now = options_.now();
    ++report.generated;
    if (choice.last_token) report.inter_token_seconds.push_back(milliseconds_between(*choice.last_token, now) / 1000);
    choice.last_token = now;
    if (!running.first_token) {
        running.first_token = now;
        running.cached_tokens = choice.sequence.cached_tokens();
        report.prefix_hits += running.cached_tokens;
    }
    running.last_told = now;

    TokenEvent event;
    event.choice = choice.sequence.choice();
    event.id = id;
    event.text = std::move(piece.text);
    event.special = running.tokenizer ? running.tokenizer->is_special(id) : holds(options_.end_tokens, id);
    if (sample.scores) event.scores = running.with_bytes(*std::move(sample.scores));
    running.tell(std::move(event));

    if (is_end) {
        finish_choice(running, choice, FinishReason::stop, {});
    } else if (is_stop) {
        finish_choice(running, choice, FinishReason::stop, id);
    } else if (piece.stop) {
        finish_choice(running, choice, FinishReason::stop, *piece.stop);
    } else if (choice.generated_tokens() >= running.max_tokens()) {
        finish_choice(running, choice, FinishReason::length, {});
    }
}

}  // namespace attune
