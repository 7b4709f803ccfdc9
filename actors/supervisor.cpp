#include "actors/supervisor.hpp"

#include "actors/auditor.hpp"
#include "actors/cache_manager.hpp"
#include "actors/executor.hpp"
#include "actors/loader.hpp"
#include "actors/router.hpp"
#include "actors/trigger.hpp"

#include <algorithm>

namespace attune {
namespace {

// Two for requests: one long prompt does not hold up the short ones behind it. The last is /tokenize's alone, so that
// nobody's answer waits for texts that are only counted.
constexpr int kPreparers = 3;

/// Whatever blocks gets a thread of its own here and nowhere else; under the test coordinator nothing does.
template <class Function>
auto spawn_blocking(SupervisorState& state, Function function) {
    return state.core->detached ? state.self->spawn<caf::detached + caf::monitored>(function, state.core)
                                : state.self->spawn<caf::monitored>(function, state.core);
}

template <class Function>
auto spawn_light(SupervisorState& state, Function function) {
    return state.self->spawn<caf::monitored>(function, state.core);
}

template <class Actor>
bool is_from(const caf::actor_addr& who, const Actor& actor) {
    return actor && who == actor.address();
}

}  // namespace

void SupervisorState::spawn_all() {
    peers->executor = spawn_blocking(*this, executor);
    core->inbox = std::make_shared<Inbox<JobPtr>>([target = peers->executor] { caf::anon_send(target, step_atom_v); });
    peers->router = spawn_light(*this, router);
    peers->trigger = spawn_light(*this, trigger);
    peers->cache_manager = spawn_light(*this, cache_manager);
    peers->auditor = spawn_blocking(*this, auditor);
    peers->loaders.resize(static_cast<std::size_t>(std::max(1, core->settings.modules.loaders)));
    for (std::size_t i = 0; i < peers->loaders.size(); ++i) spawn_loader(i);
    peers->preparers.resize(kPreparers);
    for (std::size_t i = 0; i < peers->preparers.size(); ++i) spawn_preparer(i);
    wire();
}

void SupervisorState::spawn_loader(std::size_t index) { peers->loaders[index] = spawn_blocking(*this, loader); }
void SupervisorState::spawn_preparer(std::size_t index) { peers->preparers[index] = spawn_blocking(*this, preparer); }

void SupervisorState::wire() {
    wired_ = std::make_shared<const Peers>(*peers);
    self->send(peers->executor, wire_atom_v, wired_);
    self->send(peers->router, wire_atom_v, wired_);
    self->send(peers->trigger, wire_atom_v, wired_);
    self->send(peers->cache_manager, wire_atom_v, wired_);
    self->send(peers->auditor, wire_atom_v, wired_);
}

bool SupervisorState::may_restart(const std::string& actor) {
    if (++restarts_ > kRestarts) {
        part_lost(actor);
        return false;
    }
    log(LogLevel::error, "actor " + actor + " ended unexpectedly and is started again");
    if (core->metrics) core->metrics->restarted(actor);
    return true;
}

void SupervisorState::part_lost(const std::string& actor) {
    log(LogLevel::error, "actor " + actor + " ended unexpectedly: the server is not ready any more");
    core->health->lost = true;
    self->send(peers->router, lost_atom_v);
}

void SupervisorState::down(const caf::actor_addr& who) {
    if (stopping_) return;
    if (is_from(who, peers->executor)) return part_lost("executor");
    if (is_from(who, peers->router)) return part_lost("router");
    if (is_from(who, peers->cache_manager)) return part_lost("cache_manager");
    if (is_from(who, peers->trigger)) {
        if (!may_restart("trigger")) return;
        peers->trigger = spawn_light(*this, trigger);
    } else if (is_from(who, peers->auditor)) {
        if (!may_restart("auditor")) return;
        peers->auditor = spawn_blocking(*this, auditor);
    }
    for (std::size_t i = 0; i < peers->loaders.size(); ++i)
        if (is_from(who, peers->loaders[i]) && may_restart("loader")) spawn_loader(i);
    for (std::size_t i = 0; i < peers->preparers.size(); ++i)
        if (is_from(who, peers->preparers[i]) && may_restart("preparer")) spawn_preparer(i);
    wire();
}

void SupervisorState::stop() {
    stopping_ = true;
    constexpr auto kReason = caf::exit_reason::user_shutdown;
    self->send_exit(peers->router, kReason);
    self->send_exit(peers->cache_manager, kReason);
    self->send_exit(peers->trigger, kReason);
    self->send_exit(peers->auditor, kReason);
    for (const auto& one : peers->loaders) self->send_exit(one, kReason);
    for (const auto& one : peers->preparers) self->send_exit(one, kReason);
    self->send_exit(peers->executor, kReason);
    self->quit(kReason);
}

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self, CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    self->set_down_handler([&state](caf::down_msg& message) { state.down(message.source); });
    self->set_exit_handler([&state](caf::exit_msg&) { state.stop(); });
    state.spawn_all();
    return {
        [&state](peers_atom) -> PeersPtr { return state.wired_; },
        [&state](audit_atom, bool run, const AuditReply& reply) {
            state.self->send(state.peers->auditor, audit_atom_v, run, reply);
        },
    };
}

}  // namespace attune
