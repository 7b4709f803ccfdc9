#include "engine/engine_impl.hpp"

#include "attune/assert.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

namespace attune {
namespace {

/// Rows of logits made at a time: 64 rows of 150k floats are 38 MB, a whole prompt's would be gigabytes.
constexpr std::int64_t kLogitRows = 64;

bool holds(const std::vector<TokenId>& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

std::vector<std::pair<BlockId, BlockId>> pairs_of(const std::vector<BlockCopy>& copies) {
    std::vector<std::pair<BlockId, BlockId>> pairs;
    for (const BlockCopy& copy : copies) pairs.emplace_back(copy.from, copy.to);
    return pairs;
}

/// hidden[rows], or hidden itself when that is every row.
torch::Tensor pick_rows(const torch::Tensor& hidden, std::span<std::int32_t> rows) {
    if (static_cast<std::int64_t>(rows.size()) == hidden.size(0)) return hidden;
    const auto index =
        torch::from_blob(rows.data(), {static_cast<std::int64_t>(rows.size())}, torch::kInt32).to(hidden.device());
    return hidden.index_select(0, index);
}

/// What an exception says, without libtorch's stack trace.
std::string words_of(const std::exception& error) {
    if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) return torch_error->what_without_backtrace();
    return error.what();
}

}  // namespace

StepReport EngineImpl::step() {
    StepReport report;
    const TimePoint begin = options_.now();
    // The one place where unforeseen failures end: the step's own jobs fail, everybody else goes on.
    try {
        // Thread-local, so it cannot be set once for all.
        const c10::InferenceMode inference;
        run_step(report);
    } catch (const std::exception& error) {
        fail_step(words_of(error), report);
    } catch (...) {
        fail_step("an exception of unknown type", report);
    }
    report.ended = std::exchange(ended_, {});
    report.work_left = has_work();
    report.seconds = milliseconds_between(begin, options_.now()) / 1000 - report.switch_seconds;
    report.restores += std::exchange(untold_.restores, 0);
    report.switch_seconds += std::exchange(untold_.switch_seconds, 0);
    return report;
}

/// admit -> schedule -> forward -> sample -> emit. Admission is add()'s and the scheduler's; sampling and emitting
/// happen row by row in read_logits().
void EngineImpl::run_step(StepReport& report) {
    end_overdue();
    apply_waiting_switches();
    step_requests_.clear();
    if (!settle_apply(report)) return;
    const TimePoint begin = options_.now();
    const bool prompts_wait = scheduler_.waiting() > 0;
    const StepPlan& plan = scheduler_.plan(who_may_run(), prompt_rows());
    report.prompts_held = plan.prompts_held;
    note_parked(plan, report);
    for (const ScheduledRows& rows : plan.rows) step_requests_.insert(rows.sequence->request());
    report.preempted = static_cast<int>(plan.preempted.size());
    if (!plan.copies.empty()) kv_.copy(pairs_of(plan.copies));
    if (plan.rows.empty()) return;

    build_batch(plan, batch_);
    note_starts(plan, report);
    note_apply(plan, report);
    const torch::Tensor hidden = model_->forward(batch_, kv_, slots_);  // [rows, hidden_size]
    list_logit_rows(plan);
    ATTUNE_ASSERT(logit_rows_.size() == batch_.logit_rows.size());
    for (const ScheduledRows& rows : plan.rows) rows.sequence->advance(rows.rows);
    read_logits(hidden, report);
    const double seconds = milliseconds_between(begin, options_.now()) / 1000;
    apply_.stepped(report.rows, report.prompt_rows == 0, seconds);
    cost_.stepped(report.rows - report.prompt_rows, report.prompt_rows, seconds);
    if (prompts_wait || report.prompt_rows > 0) prompt_rate_.stepped(report.prompt_rows + report.prefix_hits, seconds);
}

/// A step that nobody decodes in may be as long as it likes: only its own prompts wait for it.
Scheduler::PromptRows EngineImpl::prompt_rows() const {
    // Measured steps scatter; what is aimed at is a little less than the goal.
    constexpr double kAim = 0.9;
    if (options_.slo_itl_ms <= 0) return nullptr;
    return [this](int decode_rows) {
        if (decode_rows == 0) return std::numeric_limits<int>::max();
        return cost_.prompt_rows_within(kAim * options_.slo_itl_ms / 1000, decode_rows);
    };
}

/// A request without any block needs no slot either, until it gets blocks again.
void EngineImpl::note_parked(const StepPlan& plan, StepReport& report) {
    if (!options_.park_preempted) return;
    for (const Sequence* sequence : plan.preempted) {
        RunningJob* running = find(sequence->request());
        // A prefix lies in KV blocks and may find none to come back to, so its module stays where it is.
        const bool has_prefix = sequence->modules().virtual_tokens.prefix != nullptr;
        if (running->parked || running->job->modules.empty() || running->has_blocks() || has_prefix) continue;
        running->parked = true;
        for (const auto& choice : running->choices) choice->sequence.park();
        report.parked.push_back(running->id());
    }
    for (const Sequence* sequence : plan.wanted) {
        RunningJob* running = find(sequence->request());
        if (std::exchange(running->wanted, true)) continue;
        ++wanted_jobs_;
        report.wanted.push_back(running->id());
    }
}

void EngineImpl::end_overdue() {
    const TimePoint now = options_.now();
    std::vector<RunningJob*> overdue;
    for (const auto& [id, running] : jobs_) {
        if (running->job->deadline && *running->job->deadline <= now) overdue.push_back(running.get());
    }
    for (RunningJob* running : overdue) {
        if (running->waits_after) {  // it has an answer in time
            stop_waiting(running->id());
            continue;
        }
        fail(*running, make_error(Errc::timeout, "the request's deadline passed after " +
                                                     std::to_string(running->completion_tokens()) + " tokens"));
    }
}

/// A prompt whose log-probabilities were asked for is read to its end by the weights that began it.
void EngineImpl::apply_waiting_switches() {
    for (const auto& [id, running] : jobs_) {
        if (running->waiting_switch && !running->scores_prompt())
            apply_switch(*running, *std::exchange(running->waiting_switch, std::nullopt));
    }
}

void EngineImpl::note_starts(const StepPlan& plan, StepReport& report) {
    report.rows = batch_.rows();
    for (const ScheduledRows& rows : plan.rows) {
        if (!rows.sequence->is_decoding()) report.prompt_rows += rows.rows;
        RunningJob* running = find(rows.sequence->request());
        if (running->started) continue;
        running->started = options_.now();
        if (rows.sequence->can_cache() && !running->prompt_top) report.prefix_queries += running->prompt_tokens();
    }
}

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
        for (std::size_t i = 0; i < count; ++i) {
            const LogitRow& row = logit_rows_[first + i];
            const std::span<const float> known(values + i * vocab, vocab);
            use_row(row, beyond.defined() ? with_new_tokens(row, known, beyond[static_cast<std::int64_t>(i)]) : known,
                    report);
        }
    }
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

void EngineImpl::use_row(const LogitRow& row, std::span<const float> logits, StepReport& report) {
    RunningJob* running = find(row.request);
    if (running == nullptr) return;  // an earlier row of this step ended it
    if (running->scores_prompt() && !score_prompt_row(*running, row.token, logits)) return;
    if (!row.is_last) return;

    Choice* choice = running->open_choice(row.choice);
    if (choice == nullptr) return;
    if (running->max_tokens() == 0) {
        finish_prompt_only(*running);
    } else if (choice->generated_tokens() == 0 && running->choices.size() == 1 && running->params().n > 1) {
        draw_first_tokens(*running, logits, report);
    } else {
        draw_token(*running, *choice, logits, report);
    }
}

/// The row of the prompt's token `token` scores the prompt's next token. False when the job ended by it.
bool EngineImpl::score_prompt_row(RunningJob& running, int token, std::span<const float> logits) {
    if (token == running.next_scored_row() && !running.is_prompt_scored()) {
        const TokenId next = running.job->prompt[static_cast<std::size_t>(token) + 1];
        auto scores = sampler_.score(logits, next, running.prompt_alternatives());
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
        if (RunningJob* alive = find(id)) draw_token(*alive, *alive->open_choice(i), logits, report);
    }
}

void EngineImpl::draw_token(RunningJob& running, Choice& choice, std::span<const float> logits, StepReport& report) {
    Sample sample = sampler_.sample(logits, {.params = running.params(),
                                             .seed = *running.params().seed,
                                             .choice = choice.sequence.choice(),
                                             .token_index = choice.generated_tokens(),
                                             .end_ids = running.end_ids,
                                             .counts = choice.counts ? &*choice.counts : nullptr,
                                             .constraint = choice.constraint.get()});
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

void EngineImpl::fail_step(const std::string& fault, StepReport& report) {
    report.fault = fault;
    // What the scheduler meant to copy may not have been copied: those outside of the batch start over.
    scheduler_.distrust_blocks();
    // A failure before there was a batch would come again at the next step, so nobody is spared then.
    if (step_requests_.empty()) {
        for (const auto& [id, running] : jobs_)
            if (!running->waits_after) step_requests_.insert(id);
    }
    for (const RequestId id : step_requests_) {
        if (RunningJob* running = find(id))
            fail(*running, make_error(Errc::internal, "the engine failed while it computed this request"));
    }
}

}  // namespace attune
