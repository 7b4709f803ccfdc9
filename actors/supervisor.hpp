#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <string>

namespace attune {

/// Spawns everybody, watches them, starts again what can be started again.
///
/// Trigger, auditor, loaders and preparers hold nothing that cannot be had again. The executor (it holds the
/// requests), the router and the cache_manager are not restarted: without them the server is not ready, and whoever
/// runs it starts it anew.
struct SupervisorState {
    static inline const char* name = "supervisor";
    static constexpr int kRestarts = 100;  ///< over the whole life: more are a fault of ours, not an accident

    SupervisorActor::pointer self = nullptr;
    CorePtr core;
    std::shared_ptr<Peers> peers = std::make_shared<Peers>();

    void spawn_all();
    void down(const caf::actor_addr& who);
    void stop();

private:
    void spawn_loader(std::size_t index);
    void spawn_preparer(std::size_t index);
    void wire();
    bool may_restart(const std::string& actor);
    void part_lost(const std::string& actor);

    PeersPtr wired_;
    int restarts_ = 0;
    bool stopping_ = false;
    friend SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState>, CorePtr);
};

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self, CorePtr core);

}  // namespace attune
