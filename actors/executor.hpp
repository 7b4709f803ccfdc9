#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <deque>
#include <map>

namespace attune {

/// Owns the engine's thread: one message is one step, and everything else happens between two steps.
struct ExecutorState {
    static inline const char* name = "executor";
    static constexpr int kFaultsInARow = 3;  ///< steps that may throw before the executor gives itself up
    /// Of a step's time, spent on a large module between two steps; but a millisecond at least.
    static constexpr double kInstallShare = 0.05;

    ExecutorActor::pointer self = nullptr;
    CorePtr core;
    PeersPtr peers;

    /// False when there is nothing to do and the inbox will ring.
    bool step();
    void cancel(RequestId id);
    void switch_modules(RequestId id, const JobModules& modules);
    void keep_answer(RequestId id);
    caf::result<SlotId> install(const ModulePtr& module);
    void remove(SlotId slot);
    caf::result<bool, std::string> repair(const Damage& damage);

private:
    void take_in();
    /// What happened between two steps is reported by the next one, which nobody else may be waiting for.
    void wake() { core->inbox->push(nullptr); }
    void run_step();
    void end_all(const Error& error);
    void report(std::vector<RequestId> ids);
    void report_ended_sinks();
    /// Of preempted requests: slots they need no longer, slots they need again.
    void settle_parked(const StepReport& step);
    void resume(RequestId id, const JobModules& modules);
    void give_up(RequestId id, const Error& error);
    /// To whom it matters: prompts ahead, what is merged.
    void tell_stats(EngineStats stats);

    /// Beside running answers only so much of it that they do not feel it.
    void go_on_installing();

    struct Install {
        ModulePtr module;
        caf::typed_response_promise<SlotId> slot;
    };
    std::deque<Install> installs_;                            // in order; the first may be there in part
    double step_seconds_ = 0;                                 // of the last one
    std::map<RequestId, std::shared_ptr<OnceSink>> running_;  // what the engine holds
    std::vector<SlotId> merged_;                              // as the cache_manager knows it
    int faults_ = 0;
    bool stopped_ = false;  // by the alarm: no step is on its way
};

ExecutorActor::behavior_type executor(ExecutorActor::stateful_pointer<ExecutorState> self, CorePtr core);

}  // namespace attune
