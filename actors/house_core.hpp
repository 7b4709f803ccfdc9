#pragma once

#include "actors/health.hpp"
#include "actors/metrics.hpp"
#include "actors/module_files.hpp"
#include "actors/prepare.hpp"
#include "actors/prompt_load.hpp"
#include "attune/clock.hpp"
#include "attune/inbox.hpp"
#include "attune/settings.hpp"
#include "engine/engine.hpp"
#include "engine/weights/base_audit.hpp"

#include <functional>
#include <memory>

namespace attune {

/// What the actors of one house share: constants, thread-safe objects, and functions that tests replace.
struct HouseCore {
    Settings settings;
    ServerInfo info;
    PrepareParts prepare;
    ModuleFiles files;
    std::shared_ptr<Engine> engine;  ///< touched by the executor's thread only
    std::shared_ptr<BaseAudit> audit;
    /// Engine::slot_bytes: a function of the module and constants, so the cache_manager may ask it.
    std::function<std::uint64_t(const Module&)> slot_bytes;
    RouteSource routes;
    std::function<double()> memory_pressure;  ///< 0..1 of the process's own limit; may be null
    Now now = steady_now;
    std::shared_ptr<Metrics> metrics;
    std::shared_ptr<Health> health = std::make_shared<Health>();
    std::shared_ptr<Inbox<JobPtr>> inbox;
    PromptLoad prompt_load;
    std::function<void()> on_seeded;  ///< called once, when the first scan is in; may be null
    bool detached = true;             ///< false under the test coordinator
};
using CorePtr = std::shared_ptr<HouseCore>;

}  // namespace attune
