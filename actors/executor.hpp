#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <map>

namespace attune {

/// Owns the engine's thread: one message is one step, and everything else happens between two steps.
struct ExecutorState {
    static inline const char* name = "executor";
    static constexpr int kFaultsInARow = 3;  ///< steps that may throw before the executor gives itself up

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

    std::map<RequestId, std::shared_ptr<OnceSink>> running_;  // what the engine holds
    int faults_ = 0;
    bool stopped_ = false;  // by the alarm: no step is on its way
};

ExecutorActor::behavior_type executor(ExecutorActor::stateful_pointer<ExecutorState> self, CorePtr core);

}  // namespace attune
