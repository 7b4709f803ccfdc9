// How jobs begin and end. What happens to them in between is engine.cpp's.

#include "engine/cache_weights.hpp"
#include "engine/engine_impl.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/module/module_overlaps.hpp"
#include "engine/sample/validate.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <random>
#include <string>
#include <utility>

namespace attune {
namespace {

/// net has checked against the configured limits; here only what could break the engine is refused.
LimitSettings widest_limits(int vocab_size) {
    LimitSettings limits;
    limits.n = 1024;
    limits.stops = std::numeric_limits<int>::max();
    limits.stop_bytes = std::numeric_limits<int>::max();
    limits.logprobs = vocab_size;
    limits.logit_bias = std::numeric_limits<int>::max();
    return limits;
}

std::uint64_t random_seed() {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::string_view word_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            break;
    }
    return "cancelled";
}

Result<void> check_prompt(std::span<const TokenId> prompt, int vocab_size) {
    if (prompt.empty()) return make_error(Errc::invalid_argument, "the prompt is empty", "prompt");
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        if (prompt[i] < 0 || prompt[i] >= vocab_size)
            return make_error(Errc::invalid_argument,
                              "prompt[" + std::to_string(i) + "] is token id " + std::to_string(prompt[i]) +
                                  ", the vocabulary has " + std::to_string(vocab_size) + " tokens",
                              "prompt");
    }
    return {};
}

/// Blocks that a sequence shares with its prefix for good; a partly filled one is copied.
int shared_blocks(const VirtualTokens& virtual_tokens) {
    return virtual_tokens.prefix != nullptr ? virtual_tokens.count / kBlockTokens : 0;
}

/// 64-bit sums: prompt and max_tokens come from outside.
Result<void> check_context(std::int64_t virtual_tokens, std::int64_t prompt_tokens, std::int64_t max_tokens,
                           std::int64_t limit) {
    const std::int64_t total = virtual_tokens + prompt_tokens + max_tokens;
    if (total <= limit) return {};
    return make_error(
        Errc::context_exceeded,
        "this model's maximum context length is " + std::to_string(limit) + " tokens, but " + std::to_string(total) +
            " were requested: " + std::to_string(prompt_tokens) + " in the prompt, " + std::to_string(max_tokens) +
            " for the answer" +
            (virtual_tokens > 0 ? ", " + std::to_string(virtual_tokens) + " virtual tokens of a module" : ""),
        virtual_tokens + prompt_tokens >= limit ? "prompt" : "max_tokens");
}

}  // namespace

RunningJob* EngineImpl::find(RequestId id) {
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? nullptr : found->second.get();
}

void EngineImpl::add(JobPtr job) {
    const RequestId id = job->id;
    if (find(id) != nullptr) {
        refuse(*job, make_error(Errc::internal, "a request with this id is running"));
        return;
    }
    const std::shared_ptr<TokenSink> sink = job->sink;
    try {
        admit(std::move(job));
    } catch (const std::exception&) {  // memory ran out: this job's loss alone
        const Error error = make_error(Errc::internal, "the engine had no memory for this request");
        if (RunningJob* running = find(id)) {
            fail(*running, error);
        } else {
            Job lost;
            lost.id = id;
            lost.sink = sink;
            refuse(lost, error);
        }
    }
}

void EngineImpl::admit(JobPtr job) {
    auto modules = check(*job);
    if (!modules) {
        refuse(*job, std::move(modules.error()));
        return;
    }
    const RequestId id = job->id;
    auto tokenizer = tokenizer_of(job->modules);
    auto running = std::make_unique<RunningJob>(std::move(job), *std::move(modules), ++arrivals_, options_.end_tokens,
                                                std::move(tokenizer), pool_, options_.now());
    RunningJob& added = *(jobs_[id] = std::move(running));
    added.tell(Admitted{added.job->cold, added.job->route, added.prompt_tokens()});
    begin(added);
}

/// Of several modules with one of their own: the first one's. Whoever sent the job has seen that they agree.
std::shared_ptr<const Tokenizer> EngineImpl::tokenizer_of(const std::vector<JobModule>& modules) const {
    for (const JobModule& module : modules) {
        const Module* acting = module.applied.weight != 0 ? slots_.module(module.slot) : nullptr;
        if (acting != nullptr && acting->text && acting->text->tokenizer) return acting->text->tokenizer;
    }
    return tokenizer_;
}

/// Its first choice is there and nothing is computed.
void EngineImpl::begin(RunningJob& running) {
    note_overlaps(running);
    if (!running.prompt_top || running.is_prompt_scored()) running.tell_prompt();
    if (running.max_tokens() == 0 && !running.scores_prompt()) {
        finish_prompt_only(running);
    } else {
        scheduler_.add(running.choices[0]->sequence);
    }
}

/// What the router may have left open.
void EngineImpl::complete(Job& job, const VirtualTokens& virtual_tokens) const {
    if (!job.sampling.seed) job.sampling.seed = random_seed();
    const std::int64_t positions =
        std::min<std::int64_t>(shape_.max_context, (blocks_left() + shared_blocks(virtual_tokens)) * kBlockTokens);
    const std::int64_t room = positions - virtual_tokens.count - static_cast<std::int64_t>(job.prompt.size());
    const auto longest = static_cast<int>(std::max<std::int64_t>(room, 1));
    if (!job.sampling.max_tokens) {
        job.sampling.max_tokens = longest;
    } else if (job.to_context_end) {
        job.sampling.max_tokens = std::min(*job.sampling.max_tokens, longest);
    }
}

Result<SequenceModules> EngineImpl::check(Job& job) const {
    const int vocab_size = shape_.vocab_size + added_ids(job.modules);
    if (auto ok = check_prompt(job.prompt, vocab_size); !ok) return ok.error();
    auto modules = acting(job, job.modules);
    if (!modules) return modules;
    complete(job, modules->virtual_tokens);
    if (auto ok = validate(job.sampling, vocab_size, widest_limits(vocab_size)); !ok) return ok.error();
    if (auto ok = check_room(job, *modules); !ok) return ok.error();
    return modules;
}

Result<SequenceModules> EngineImpl::acting(const Job& job, const std::vector<JobModule>& modules) const {
    const FindResident find = [this](SlotId slot) {
        const auto prefix = prefixes_.find(slot);
        return Resident{slots_.module(slot), prefix != prefixes_.end() ? &prefix->second : nullptr};
    };
    auto out = acting_modules(job.prompt, modules, job.combine, find);
    if (out && options_.prefix_cache) out->cache_weights = cache_weights(*out, modules, find, job.cache_salt);
    return out;
}

/// Its context must fit into the model, and into the KV cache when it is alone.
Result<void> EngineImpl::check_room(const Job& job, const SequenceModules& modules) const {
    const VirtualTokens& virtual_tokens = modules.virtual_tokens;
    if (auto ok = check_context(virtual_tokens.count, static_cast<std::int64_t>(job.prompt.size()),
                                *job.sampling.max_tokens, shape_.max_context);
        !ok)
        return ok;
    const std::int64_t needed = blocks_alone(job, virtual_tokens);
    const std::int64_t left = blocks_left();
    if (needed <= left) return {};
    return make_error(Errc::context_exceeded,
                      "the request needs " + std::to_string(needed * kBlockTokens) +
                          " positions of the KV cache, which has " + std::to_string(left * kBlockTokens) +
                          " beside the prefixes of resident modules",
                      "max_tokens");
}

/// How many blocks one of its sequences needs at most, beside the prefixes of resident modules.
std::int64_t EngineImpl::blocks_alone(const Job& job, const VirtualTokens& virtual_tokens) const {
    const std::int64_t positions =
        virtual_tokens.count + static_cast<std::int64_t>(job.prompt.size()) + *job.sampling.max_tokens;
    return (positions + kBlockTokens - 1) / kBlockTokens - shared_blocks(virtual_tokens);
}

void EngineImpl::refuse(Job& job, Error error) {
    EndedRequest ended;
    ended.id = job.id;
    ended.outcome = "error";
    ended_.push_back(std::move(ended));
    try {
        job.sink->push(Failed{std::move(error)});
    } catch (...) {  // NOLINT(bugprone-empty-catch): the client's side is gone
    }
}

void EngineImpl::cancel(RequestId id) {
    RunningJob* running = find(id);
    if (running == nullptr) return;
    for (int i = 0; i < running->params().n && !running->waits_after; ++i) {
        const bool exists = i < static_cast<int>(running->choices.size());
        if (exists && running->open_choice(i) == nullptr) continue;
        ChoiceFinished finished{i, FinishReason::cancelled, {}, {}};
        if (exists) finished.text = running->open_choice(i)->text.finish();
        running->tell(std::move(finished));
    }
    running->tell(running->finished());
    leave(*running, "cancelled");
}

bool EngineImpl::switch_modules(RequestId id, std::vector<JobModule> modules) {
    RunningJob* running = find(id);
    if (running == nullptr || running->parked) return false;
    if (running->job->revise) return revise(*running, std::move(modules));
    auto acting_now = acting(*running->job, modules);
    if (!acting_now || !check_room(*running->job, *acting_now)) return false;
    RunningJob::Switch to{std::move(modules), *std::move(acting_now)};
    if (running->scores_prompt()) {
        running->waiting_switch = std::move(to);
    } else {
        apply_switch(*running, std::move(to));
    }
    return true;
}

bool EngineImpl::resume(RequestId id, std::vector<JobModule> modules) {
    RunningJob* running = find(id);
    if (running == nullptr || !running->parked) return false;
    auto acting_now = acting(*running->job, modules);
    if (!acting_now) {
        fail(*running, std::move(acting_now.error()));
        return false;
    }
    running->parked = false;
    leave_wanted(*running);
    running->set_modules(std::move(modules));
    for (const auto& choice : running->choices) choice->sequence.restart(*acting_now);
    return true;
}

/// Its modules are asked for no longer.
void EngineImpl::leave_wanted(RunningJob& running) { wanted_jobs_ -= std::exchange(running.wanted, false) ? 1 : 0; }

void EngineImpl::apply_switch(RunningJob& running, RunningJob::Switch to) {
    running.set_modules(std::move(to.modules));
    for (const auto& choice : running.choices) {
        // One that has ended holds no block, but may hold on to a prefix that goes.
        if (choice->open) scheduler_.requeue(choice->sequence);
        choice->sequence.restart(to.acting);
    }
    note_overlaps(running);
    running.tell(Switched{running.completion_tokens(), running.applied()});
}

void EngineImpl::finish_choice(RunningJob& running, Choice& choice, FinishReason reason,
                               std::variant<std::monostate, std::string, TokenId> stop_reason) {
    choice.open = false;
    scheduler_.remove(choice.sequence);
    choice.sequence.restart();
    running.tell(ChoiceFinished{choice.sequence.choice(), reason, choice.text.finish(), std::move(stop_reason)});
    if (running.open_choices() == 0) conclude(running, word_of(reason));
}

/// max_tokens 0: the prompt was asked for, and it has been told.
void EngineImpl::finish_prompt_only(RunningJob& running) {
    running.choices[0]->sequence.cache_blocks();
    for (int i = 0; i < running.params().n; ++i) running.tell(ChoiceFinished{i, FinishReason::length, {}, {}});
    for (const auto& choice : running.choices) {
        choice->open = false;
        scheduler_.remove(choice->sequence);
        choice->sequence.restart();
    }
    conclude(running, "length");
}

void EngineImpl::conclude(RunningJob& running, std::string_view outcome) {
    if (running.expects_revision) {
        running.waits_after = outcome;
        ++waiting_jobs_;
        return;
    }
    running.tell(running.finished());
    leave(running, outcome);
}

void EngineImpl::note_overlaps(RunningJob& running) const {
    std::vector<NamedModule> acting;
    for (const JobModule& module : running.job->modules) {
        if (module.applied.weight != 0) acting.push_back({module.applied.id.name, slots_.module(module.slot)});
    }
    running.overlaps = module_overlaps(acting);
}

void EngineImpl::fail(RunningJob& running, Error error) {
    running.tell(Failed{std::move(error)});
    leave(running, "error");
}

/// What it computed may not be finite, so nobody shares the blocks that it alone holds.
void EngineImpl::fail_non_finite(RunningJob& running, const std::string& which) {
    std::vector<BlockId> blocks;
    for (const auto& choice : running.choices) {
        const auto held = choice->sequence.blocks().blocks();
        blocks.insert(blocks.end(), held.begin(), held.end());
    }
    fail(running, make_error(Errc::non_finite, which + " are not finite under " + running.weights_in_words()));
    pool_.forget(blocks);
}

void EngineImpl::drop_prefix_cache() {
    pool_.forget_all();
    for (const auto& [id, running] : jobs_) {
        for (const auto& choice : running->choices) choice->sequence.stop_caching();
    }
}

/// Frees everything the job holds and reports it; the last thing done with it.
void EngineImpl::leave(RunningJob& running, std::string_view outcome) {
    leave_waiting(running);
    leave_wanted(running);
    const Finished finished = running.finished();
    EndedRequest ended;
    ended.id = running.id();
    ended.usage = finished.usage;
    ended.outcome = outcome;
    ended.queue_ms = finished.queue_ms;
    ended.ttft_ms = finished.ttft_ms;
    ended.e2e_ms = milliseconds_between(running.received, options_.now());
    ended_.push_back(std::move(ended));
    for (const auto& choice : running.choices) scheduler_.remove(choice->sequence);
    jobs_.erase(running.id());
}

}  // namespace attune
