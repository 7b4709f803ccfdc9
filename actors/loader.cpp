#include "actors/loader.hpp"

namespace attune {

LoaderActor::behavior_type loader(LoaderActor::stateful_pointer<LoaderState>, CorePtr core) {
    return {[core](work_atom, const LoaderTaskPtr& task) { return run_task(core->files, *task); }};
}

PreparerActor::behavior_type preparer(PreparerActor::stateful_pointer<PreparerState>, CorePtr core) {
    return {
        [core](prepare_atom, const PrepareTaskPtr& task) {
            return std::make_shared<Prepared>(prepare(core->prepare, *task));
        },
        [core](tokenize_atom, const TokenizeTaskPtr& task) { run_tokenize(core->prepare, *task); },
    };
}

}  // namespace attune
