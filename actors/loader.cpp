#include "actors/loader.hpp"

namespace attune {

LoaderActor::behavior_type loader(LoaderActor::stateful_pointer<LoaderState>, CorePtr core) {
    return {[core](work_atom, const LoaderTaskPtr& task) { return run_task(core->files, *task); }};
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
