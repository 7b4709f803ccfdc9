#include "engine/engine_impl.hpp"

#include "attune/assert.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

namespace attune {
namespace {

std::vector<std::pair<BlockId, BlockId>> pairs_of(const std::vector<BlockCopy>& copies) {
    std::vector<std::pair<BlockId, BlockId>> pairs;
    for (const BlockCopy& copy : copies) pairs.emplace_back(copy.from, copy.to);
    return pairs;
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
