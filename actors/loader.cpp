#include "actors/loader.hpp"

#include "actors/load_pace.hpp"

#include <sys/resource.h>

#include <system_error>
#include <thread>

namespace attune {
namespace {

constexpr int kLeastUrgent = 19;

/// On a thread of its own, since a thread that has become less urgent may not become more urgent again.
LoaderDonePtr run_unhurried(const ModuleFiles& files, const LoaderTask& task) {
    LoaderDonePtr done;
    try {
        std::thread([&] {
            setpriority(PRIO_PROCESS, 0, kLeastUrgent);  // 0: this thread, on Linux; it works without, only louder
            done = run_task(files, task);
        }).join();
    } catch (const std::system_error&) {  // no thread to be had
        done = run_task(files, task);
    }
    return done;
}

}  // namespace

LoaderActor::behavior_type loader(LoaderActor::stateful_pointer<LoaderState>, CorePtr core) {
    return {[core](work_atom, const LoaderTaskPtr& task) {
        return core->detached && task->bytes >= LoadPace::kFreeBytes ? run_unhurried(core->files, *task)
                                                                     : run_task(core->files, *task);
    }};
}

PreparerActor::behavior_type preparer(PreparerActor::stateful_pointer<PreparerState> self, CorePtr core) {
    return {
        [core, self](prepare_atom, const PrepareTaskPtr& task) {
            auto prompt = std::make_shared<Prepared>(prepare(core->prepare, *task));
            if (*prompt && task->learner && !task->routes) self->send(self, learn_atom_v, task);
            return prompt;
        },
        [core](tokenize_atom, const TokenizeTaskPtr& task) { run_tokenize(core->prepare, *task); },
        [core](routes_atom, const RoutesTaskPtr& task) { return look_for_rules(core->routes, *task); },
        [](learn_atom, const PrepareTaskPtr& task) { learn(*task); },
    };
}

}  // namespace attune
