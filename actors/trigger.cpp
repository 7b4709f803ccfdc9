#include "actors/trigger.hpp"

#include "attune/log.hpp"

#include <algorithm>
#include <set>

namespace attune {
namespace {

double fraction(std::uint64_t used, std::uint64_t capacity) {
    return capacity == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(capacity);
}

}  // namespace

TriggerPlan plan(const Settings& settings, const CacheUsage& usage, double memory_pressure, HitWindow& hits,
                 TimePoint now) {
    TriggerPlan out;
    const TriggerSettings& trigger = settings.trigger;
    const double host = fraction(usage.host_used, usage.host_capacity);
    const double pressure = std::max(host, memory_pressure);
    const bool idle_leave = settings.modules.idle_unload == "always" ||
                            (settings.modules.idle_unload == "pressure" && pressure > trigger.low_watermark);
    const bool high = settings.modules.idle_unload != "never" && pressure > trigger.high_watermark;

    std::set<std::string> loaded;
    for (const auto& module : usage.loaded) loaded.insert(module.name);
    for (const auto& [name, count] : hits.hot(trigger.hot_hits, now))
        if (!high && !loaded.contains(name)) out.prefetch.push_back({name, "hot"});

    // Least hit first, then least recently used.
    std::vector<const CacheUsage::Loaded*> candidates;
    for (const auto& module : usage.loaded)
        if (!module.busy && !module.pinned) candidates.push_back(&module);
    std::sort(candidates.begin(), candidates.end(), [&](const auto* a, const auto* b) {
        const int hits_a = hits.hits(a->name, now);
        const int hits_b = hits.hits(b->name, now);
        if (hits_a != hits_b) return hits_a < hits_b;
        return hits.last(a->name) < hits.last(b->name);
    });
    const std::size_t kept = static_cast<std::size_t>(std::max(0, settings.modules.min_resident));
    const std::size_t may_leave = usage.loaded.size() > kept ? usage.loaded.size() - kept : 0;
    const auto target = static_cast<std::uint64_t>(trigger.low_watermark * static_cast<double>(usage.host_capacity));
    std::uint64_t used = usage.host_used;
    const auto idle_limit = std::chrono::duration<double>(trigger.idle_s);
    for (const auto* module : candidates) {
        if (out.unload.size() >= may_leave) break;
        const bool idle = now - hits.last(module->name) >= idle_limit;
        const bool over = high && (used > target || memory_pressure > trigger.high_watermark);
        if (!(idle_leave && idle) && !over) continue;
        // Idleness alone stops at the low watermark too, unless idle modules always leave.
        if (!over && settings.modules.idle_unload == "pressure" && used <= target &&
            memory_pressure <= trigger.low_watermark)
            continue;
        out.unload.push_back({module->name, over ? "memory" : "idle"});
        used -= std::min(used, module->bytes);
    }
    return out;
}

void TriggerState::tick() {
    if (peers) self->send(peers->cache_manager, usage_atom_v);
    self->delayed_send(self, kTick, tick_atom_v);
}

void TriggerState::act(const CacheUsage& usage) {
    for (const auto& [who, user] : present)
        for (const std::string& module : user.modules) hits->touch(module, core->now());
    const double pressure = core->memory_pressure ? core->memory_pressure() : 0.0;
    TriggerPlan next = plan(core->settings, usage, pressure, *hits, core->now());
    if (!next.unload.empty()) self->send(peers->cache_manager, unload_atom_v, tell("unload", next.unload));
    if (!next.prefetch.empty()) self->send(peers->cache_manager, prefetch_atom_v, tell("prefetch", next.prefetch));
}

Names TriggerState::tell(const std::string& what, const std::vector<TriggerDecision>& decisions) const {
    Names names;
    for (const TriggerDecision& one : decisions) {
        names.list.push_back(one.module);
        if (core->metrics) core->metrics->decided(what, one.reason);
        log(LogLevel::info, "trigger: " + what + " module `" + one.module + "` (" + one.reason + ")");
    }
    return names;
}

/// The last connection to leave starts the idle clock of the user's modules.
void TriggerState::greet(const Greeting& greeting) {
    const auto key = std::pair(greeting.caller.name, greeting.user);
    if (!greeting.leaves) {
        Present& user = present[key];
        ++user.connections;
        user.modules = greeting.modules;
    }
    const auto found = present.find(key);
    if (found == present.end()) return;  // this trigger is a new one: it has not seen them come
    for (const std::string& module : found->second.modules) hits->touch(module, core->now());
    if (greeting.leaves && --found->second.connections == 0) present.erase(found);
}

void TriggerState::list(const ModuleList& modules, const ListReply& reply) {
    for (ModuleStatus& status : *modules) status.hits_per_minute = hits->per_minute(status.name, core->now());
    (*reply)(std::move(*modules));
}

TriggerActor::behavior_type trigger(TriggerActor::stateful_pointer<TriggerState> self, CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    state.hits.emplace(std::chrono::duration<double>(state.core->settings.trigger.window_s));
    self->delayed_send(self, TriggerState::kTick, tick_atom_v);
    return {
        [&state](wire_atom, const PeersPtr& peers) { state.peers = peers; },
        [&state](hit_atom, const Names& names) {
            for (const std::string& one : names.list) state.hits->hit(one, state.core->now());
        },
        [&state](unload_atom, const Names& names) {
            for (const std::string& one : names.list) state.hits->forget(one);
        },
        [&state](greet_atom, const Greeting& greeting) { state.greet(greeting); },
        [&state](tick_atom) { state.tick(); },
        [&state](usage_atom, const CacheUsagePtr& usage) { state.act(*usage); },
        [&state](list_atom, const ModuleList& modules, const ListReply& reply) { state.list(modules, reply); },
    };
}

}  // namespace attune
