#include "actors/executor.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace attune {

bool ExecutorState::step() {
    take_in();
    go_on_installing();
    if (core->health->alarm) {
        // No token more from damaged weights: `served` would call them the base's. repair() goes on from here; what
        // comes meanwhile stays in the inbox, whose bell is silent as long as nobody parks.
        if (core->health->beyond_repair) end_all(base_damaged());
        stopped_ = true;
        return false;
    }
    if (!core->engine->has_work()) {
        core->health->busy = false;
        report_ended_sinks();
        return !core->inbox->park();
    }
    core->health->busy = true;
    run_step();
    return true;
}

/// Jobs pushed before a message was sent are in the engine before it is handled.
void ExecutorState::take_in() {
    core->inbox->drain([this](JobPtr job) {
        if (!job) return;  // only wake()'s bell
        const RequestId id = job->id;
        auto sink = std::dynamic_pointer_cast<OnceSink>(job->sink);
        if (!sink) sink = std::make_shared<OnceSink>(job->sink);
        job->sink = sink;
        running_[id] = sink;
        core->prompt_load.taken(job->priority, static_cast<std::int64_t>(job->prompt.size()));
        try {
            core->engine->add(std::move(job));
        } catch (...) {
            sink->fail(make_error(Errc::internal, "the engine could not take the request"));
        }
        if (sink->ended()) report({id});  // it could never run
    });
}

void ExecutorState::run_step() {
    try {
        const StepReport step = core->engine->step();
        faults_ = 0;
        step_seconds_ = step.seconds;
        if (!step.fault.empty()) {
            log(LogLevel::error, "a step failed and ended its requests: " + step.fault);
            if (core->metrics) core->metrics->step_failed();
        }
        std::vector<RequestId> ids;
        for (const EndedRequest& ended : step.ended) {
            ids.push_back(ended.id);
            if (core->metrics) core->metrics->ended(ended);
        }
        EngineStats stats = core->engine->stats();
        if (core->metrics) core->metrics->step(step, stats);
        tell_stats(std::move(stats));
        settle_parked(step);  // before the router hears of ends: a release comes after its park
        report(std::move(ids));
        if (!step.not_merged.empty()) log(LogLevel::warn, "served row by row: " + step.not_merged);
        if (step.damage) {
            core->health->alarm = true;
            self->send(peers->auditor, damage_atom_v, step.damage->message);
        }
    } catch (...) {
        // Engine::step() catches what a batch throws; whatever comes through is not tied to one batch.
        if (core->metrics) core->metrics->step_failed();
        end_all(make_error(Errc::internal, "the engine met an unforeseen fault"));
        if (++faults_ >= kFaultsInARow) self->quit(caf::exit_reason::unhandled_exception);
    }
}

void ExecutorState::tell_stats(EngineStats stats) {
    core->prompt_load.measured(std::move(stats.prompts), stats.prompt_rows_per_second);
    if (stats.merged_slots == merged_) return;
    merged_ = std::move(stats.merged_slots);
    self->send(peers->cache_manager, merged_atom_v, Slots{merged_});
}

void ExecutorState::settle_parked(const StepReport& step) {
    for (const RequestId id : step.parked) self->send(peers->cache_manager, park_atom_v, id);
    for (const RequestId id : step.wanted)
        self->request(peers->cache_manager, caf::infinite, resume_atom_v, id)
            .then([this, id](const JobModules& modules) { resume(id, modules); },
                  [this, id](const caf::error& error) { give_up(id, from_caf(error)); });
}

void ExecutorState::resume(RequestId id, const JobModules& modules) {
    if (!running_.contains(id)) return;  // its release is on the way
    try {
        core->engine->resume(id, modules.list);
        wake();
    } catch (...) {
        give_up(id, make_error(Errc::internal, "going on met an unforeseen fault"));
    }
}

/// A preempted request whose modules could not come back.
void ExecutorState::give_up(RequestId id, const Error& error) {
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    found->second->fail(error);
    try {
        core->engine->cancel(id);
    } catch (...) {  // NOLINT(bugprone-empty-catch): it has ended for its client
    }
    report({id});
    wake();
}

void ExecutorState::end_all(const Error& error) {
    std::vector<RequestId> ids;
    for (const auto& [id, sink] : running_) {
        sink->fail(error);
        ids.push_back(id);
    }
    for (const RequestId id : ids) {
        try {
            core->engine->cancel(id);
        } catch (...) {
        }
    }
    report(std::move(ids));
}

void ExecutorState::cancel(RequestId id) {
    take_in();
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    const auto sink = found->second;
    try {
        core->engine->cancel(id);
    } catch (...) {
    }
    sink->fail(make_error(Errc::cancelled, "cancelled"));  // unless the engine has told it
    report({id});
    EngineStats stats = core->engine->stats();
    if (core->metrics) core->metrics->step({}, stats);
    tell_stats(std::move(stats));
}

void ExecutorState::switch_modules(RequestId id, const JobModules& modules) {
    take_in();
    bool done = false;
    try {
        done = running_.contains(id) && core->engine->switch_modules(id, modules.list);
    } catch (...) {
    }
    self->send(peers->router, switch_atom_v, id, done);
    if (running_.contains(id)) wake();
}

void ExecutorState::keep_answer(RequestId id) {
    take_in();
    try {
        core->engine->stop_waiting(id);
    } catch (...) {
    }
    if (running_.contains(id)) wake();
}

caf::result<SlotId> ExecutorState::install(const ModulePtr& module) {
    auto slot = self->make_response_promise<SlotId>();
    installs_.push_back({module, slot});
    go_on_installing();
    return slot;
}

void ExecutorState::go_on_installing() {
    constexpr double kLeastSeconds = 0.001;
    double left = std::max(kLeastSeconds, kInstallShare * step_seconds_);
    const bool alone = !core->engine->has_work() || core->health->alarm;
    while (!installs_.empty() && left > 0) {
        const ModulePtr module = installs_.front().module;
        Result<std::optional<SlotId>> done =
            make_error(Errc::internal, "installing module `" + module->id.name + "` met an unforeseen fault");
        const TimePoint begin = core->now();
        try {
            done = core->engine->install_some(module, alone ? std::numeric_limits<double>::infinity() : left);
        } catch (...) {  // NOLINT(bugprone-empty-catch): `done` says it
        }
        if (done && !*done) return;  // the rest after the next step
        if (!alone) left -= milliseconds_between(begin, core->now()) / 1000;
        auto slot = std::move(installs_.front().slot);
        installs_.pop_front();
        if (done)
            slot.deliver(**done);
        else
            slot.deliver(to_caf(done.error()));
    }
}

void ExecutorState::remove(SlotId slot) {
    try {
        core->engine->remove(slot);
    } catch (...) {
        log(LogLevel::error, "a slot could not be freed");
    }
}

caf::result<bool, std::string> ExecutorState::repair(const Damage& damage) {
    take_in();
    Result<void> done = make_error(Errc::base_damaged, "restoring the base met an unforeseen fault");
    try {
        done = core->engine->restore_base(damage.tensors, damage.good);
    } catch (...) {  // NOLINT(bugprone-empty-catch): `done` says it
    }
    core->health->beyond_repair = !done;
    if (!done) {
        end_all(base_damaged());
        return {false, done.error().message};
    }
    core->health->alarm = false;
    if (std::exchange(stopped_, false)) self->send(self, step_atom_v);
    return {true, std::string()};
}

void ExecutorState::report(std::vector<RequestId> ids) {
    if (ids.empty()) return;
    for (const RequestId id : ids) running_.erase(id);
    self->send(peers->router, ended_atom_v, EndedBatch{std::move(ids)});
}

/// An idle engine holds only those that wait for their revision: whoever else was not reported has ended all the same.
void ExecutorState::report_ended_sinks() {
    std::vector<RequestId> ids;
    for (const auto& [id, sink] : running_) {
        if (core->engine->has_job(id)) continue;
        sink->fail(make_error(Errc::internal, "the engine lost the request"));
        ids.push_back(id);
    }
    report(std::move(ids));
}

ExecutorActor::behavior_type executor(ExecutorActor::stateful_pointer<ExecutorState> self, CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    return {
        [&state](wire_atom, const PeersPtr& peers) { state.peers = peers; },
        [&state, self](step_atom) {
            if (state.step()) self->send(self, step_atom_v);
        },
        [&state](cancel_atom, RequestId id) { state.cancel(id); },
        [&state](switch_atom, RequestId id, const JobModules& modules) { state.switch_modules(id, modules); },
        [&state](keep_atom, RequestId id) { state.keep_answer(id); },
        [&state](install_atom, const ModulePtr& module) { return state.install(module); },
        [&state](remove_atom, SlotId slot) { state.remove(slot); },
        [&state](repair_atom, const Damage& damage) { return state.repair(damage); },
    };
}

}  // namespace attune
