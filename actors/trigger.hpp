#pragma once

#include "actors/hit_window.hpp"
#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// One thing the trigger wants changed, and why: logged and counted, so that an operator can read it.
struct TriggerDecision {
    std::string module;
    std::string reason;  ///< prefetch: hot; unload: idle, memory
    friend bool operator==(const TriggerDecision&, const TriggerDecision&) = default;
};

/// What the trigger wants changed; the cache_manager decides whether leases and pins allow it.
struct TriggerPlan {
    std::vector<TriggerDecision> prefetch;
    std::vector<TriggerDecision> unload;
};

/// A pure function of hits, memory and idle time. It never guesses the future: hot modules that are not resident are
/// fetched unless memory is short; above the low watermark idle ones leave, above the high one the least hit leave
/// until the low one is reached. The `min_resident` most recently used leave last, and not for idleness alone.
TriggerPlan plan(const Settings& settings, const CacheUsage& usage, double memory_pressure, HitWindow& hits,
                 TimePoint now);

struct TriggerState {
    static inline const char* name = "trigger";
    static constexpr std::chrono::milliseconds kTick{1000};

    TriggerActor::pointer self = nullptr;
    CorePtr core;
    PeersPtr peers;
    std::optional<HitWindow> hits;

    /// A user who has connections: their modules are not idle.
    struct Present {
        int connections = 0;
        std::vector<std::string> modules;
    };
    std::map<std::pair<std::string, std::string>, Present> present;  ///< by key and user; bounded by the connections

    void tick();
    void act(const CacheUsage& usage);
    Names tell(const std::string& what, const std::vector<TriggerDecision>& decisions) const;
    void greet(const Greeting& greeting);
    void list(const ModuleList& modules, const ListReply& reply);
};

TriggerActor::behavior_type trigger(TriggerActor::stateful_pointer<TriggerState> self, CorePtr core);

}  // namespace attune
