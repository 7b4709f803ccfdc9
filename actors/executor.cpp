#include "actors/executor.hpp"

#include <utility>

namespace attune {

bool ExecutorState::step() {
    take_in();
    if (core->health->alarm) {
        // No token more from damaged weights: `served` would call them the base's. repair() goes on from here; what
        // comes meanwhile stays in the inbox, whose bell is silent as long as nobody parks.
        if (core->health->beyond_repair) end_all(base_damaged());
        stopped_ = true;
        return false;
    }
    if (!core->engine->has_work()) {
        report_ended_sinks();
        return !core->inbox->park();
    }
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
        if (!step.fault.empty()) {
            log(LogLevel::error, "a step failed and ended its requests: " + step.fault);
            if (core->metrics) core->metrics->step_failed();
        }
        std::vector<RequestId> ids;
        for (const EndedRequest& ended : step.ended) {
            ids.push_back(ended.id);
            if (core->metrics) core->metrics->ended(ended);
        }
        if (core->metrics) core->metrics->step(step, core->engine->stats());
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
    if (core->metrics) core->metrics->step({}, core->engine->stats());
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
    try {
        auto slot = core->engine->install(module);
        if (slot) return *slot;
        return to_caf(slot.error());
    } catch (...) {
        return to_caf(
            make_error(Errc::internal, "installing module `" + module->id.name + "` met an unforeseen fault"));
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
