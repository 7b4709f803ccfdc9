// Cold policy revise: the whole answer of a job is made again under its modules. One whose first answer has come to its
// end stays in jobs_ without a sequence, until its modules come or nobody expects them any more.

#include "engine/engine_impl.hpp"

#include <utility>

namespace attune {

bool EngineImpl::revise(RunningJob& running, std::vector<JobModule> modules) {
    Job& job = *running.job;
    const std::optional<int> limit = job.sampling.max_tokens;
    auto acting_now = acting(job, modules);
    // A length that the client left open gives way to the modules' virtual tokens.
    if (acting_now) complete(job, acting_now->virtual_tokens);
    if (!acting_now || !check_room(job, *acting_now)) {
        job.sampling.max_tokens = limit;
        stop_waiting(job.id);
        return false;
    }
    leave_waiting(running);
    for (const auto& choice : running.choices) scheduler_.remove(choice->sequence);
    running.begin_again(std::move(modules), *std::move(acting_now), pool_);
    running.tell(Revised{running.completion_tokens(), running.applied()});
    begin(running);
    return true;
}

void EngineImpl::stop_waiting(RequestId id) {
    RunningJob* running = find(id);
    if (running == nullptr) return;
    running->expects_revision = false;
    if (running->waits_after) conclude(*running, std::string(*running->waits_after));
}

void EngineImpl::leave_waiting(RunningJob& running) {
    if (std::exchange(running.waits_after, std::nullopt)) --waiting_jobs_;
}

}  // namespace attune
