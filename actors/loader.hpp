#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

namespace attune {

/// Reads, hashes and checks modules: blocking, so detached; as many of them as loads may run at once.
struct LoaderState {
    static inline const char* name = "loader";
};

LoaderActor::behavior_type loader(LoaderActor::stateful_pointer<LoaderState> self, CorePtr core);

/// Renders templates and tokenises: slow for long prompts, so detached too.
struct PreparerState {
    static inline const char* name = "preparer";
};

PreparerActor::behavior_type preparer(PreparerActor::stateful_pointer<PreparerState> self, CorePtr core);

}  // namespace attune
