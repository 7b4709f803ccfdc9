#include "house_fixture.hpp"

#include "actors/trigger.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;

namespace {

using Decisions = std::vector<TriggerDecision>;

const TimePoint kStart{std::chrono::hours(1)};

CacheUsage usage_of(std::vector<std::string> names, std::uint64_t used = 0) {
    CacheUsage usage;
    for (auto& name : names) usage.loaded.push_back({name, false, false, 100});
    usage.host_used = used == 0 ? 100 * usage.loaded.size() : used;
    usage.host_capacity = 1000;
    return usage;
}

Settings settings_of(const std::string& idle_unload = "pressure") {
    Settings settings;
    settings.modules.idle_unload = idle_unload;
    return settings;
}

}  // namespace

TEST_CASE("hits count within the window only", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("a", kStart);
    hits.hit("a", kStart + 30s);
    CHECK(hits.hits("a", kStart + 59s) == 2);
    CHECK(hits.hits("a", kStart + 60s) == 1);
    CHECK(hits.hits("a", kStart + 91s) == 0);
    CHECK(hits.hits("nobody", kStart) == 0);
    CHECK(hits.last("a") == kStart + 30s);
}

TEST_CASE("hits per minute scale with the window", "[actors][trigger]") {
    HitWindow hits(30s);
    for (int i = 0; i < 5; ++i) hits.hit("a", kStart);
    CHECK(hits.per_minute("a", kStart + 1s) == 10.0);
}

TEST_CASE("hot modules that are not loaded are fetched", "[actors][trigger]") {
    HitWindow hits(60s);
    for (int i = 0; i < 3; ++i) hits.hit("hot", kStart);
    for (int i = 0; i < 3; ++i) hits.hit("here", kStart);
    hits.hit("cool", kStart);
    const TriggerPlan wish = plan(settings_of(), usage_of({"here"}), 0, hits, kStart + 1s);
    CHECK(wish.prefetch == Decisions{{"hot", "hot"}});
    CHECK(wish.unload.empty());
}

TEST_CASE("below the low watermark idle modules stay", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("a", kStart);
    CHECK(plan(settings_of(), usage_of({"a"}), 0, hits, kStart + 1000s).unload.empty());
}

TEST_CASE("above the low watermark only idle modules leave", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("idle", kStart);
    hits.hit("fresh", kStart + 900s);
    const CacheUsage usage = usage_of({"fresh", "idle"}, 800);
    CHECK(plan(settings_of(), usage, 0, hits, kStart + 1000s).unload == Decisions{{"idle", "idle"}});
}

TEST_CASE("above the high watermark the least hit leave until the low one is reached", "[actors][trigger]") {
    HitWindow hits(60s);
    const std::vector<std::string> names{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
    for (std::size_t i = 0; i < names.size(); ++i)
        for (std::size_t hit = 0; hit <= i; ++hit) hits.hit(names[i], kStart);
    const TriggerPlan wish = plan(settings_of(), usage_of(names), 0, hits, kStart + 1s);
    CHECK(wish.unload == Decisions{{"n0", "memory"}, {"n1", "memory"}, {"n2", "memory"}});
}

TEST_CASE("busy and pinned modules are never asked to leave", "[actors][trigger]") {
    HitWindow hits(60s);
    CacheUsage usage = usage_of({"busy", "pinned"}, 1000);
    usage.loaded[0].busy = true;
    usage.loaded[1].pinned = true;
    CHECK(plan(settings_of(), usage, 0, hits, kStart).unload.empty());
}

TEST_CASE("the most recently used min_resident modules leave last", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("old", kStart);
    hits.hit("new", kStart + 1s);
    Settings settings = settings_of("always");
    settings.modules.min_resident = 1;
    CHECK(plan(settings, usage_of({"new", "old"}), 0, hits, kStart + 9999s).unload == Decisions{{"old", "idle"}});
}

TEST_CASE("idle_unload always and never mean what they say", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("a", kStart);
    CHECK(plan(settings_of("always"), usage_of({"a"}), 0, hits, kStart + 301s).unload.size() == 1);
    CHECK(plan(settings_of("always"), usage_of({"a"}), 0, hits, kStart + 299s).unload.empty());
    CHECK(plan(settings_of("never"), usage_of({"a"}, 1000), 0, hits, kStart + 9999s).unload.empty());
}

TEST_CASE("the process's own limit counts like the budget", "[actors][trigger]") {
    HitWindow hits(60s);
    hits.hit("a", kStart);
    CHECK(plan(settings_of(), usage_of({"a"}), 0.95, hits, kStart + 1s).unload.size() == 1);
}

TEST_CASE_METHOD(HouseFixture, "idle modules leave by the trigger's tick and come back when asked",
                 "[actors][trigger]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.modules.idle_unload = "always";
    settings.trigger.idle_s = 10;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    pass(5s);
    CHECK(tier("a") == Tier::resident);
    pass(6s);
    pass(1s);
    CHECK(tier("a") == Tier::cold);
    CHECK(engine->installed() == 0);
    CHECK(metrics().find("attune_trigger_decisions_total{decision=\"unload\",reason=\"idle\"} 1") != std::string::npos);
    CHECK(ask("a")->ok());
}

TEST_CASE_METHOD(HouseFixture, "a hot module that was evicted is fetched when there is room again",
                 "[actors][trigger]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["root/b"] = FakeSource{"gen-b"};
    settings.modules.host_bytes = 100;
    settings.modules.idle_unload = "never";
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 3; ++i) ask("a");
    CHECK(module("a")->hits_per_minute == 3.0);
    ask("b");
    CHECK(tier("a") == Tier::cold);
    pass(1s);
    CHECK(tier("a") == Tier::cold);  // a prefetch evicts nobody
    order("b", ModuleOrder::unload);
    pass(1s);
    CHECK(tier("a") == Tier::resident);
    CHECK(loads_of["root/a"] == 2);
}

TEST_CASE_METHOD(HouseFixture, "a hot module that an operator unloads stays cold until it is asked for",
                 "[actors][trigger]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 5; ++i) ask("a");
    order("a", ModuleOrder::unload);
    pass(1s);
    pass(1s);
    CHECK(tier("a") == Tier::cold);
    CHECK(ask("a")->ok());
}

TEST_CASE("nothing is fetched while memory is short", "[actors][trigger]") {
    HitWindow hits(60s);
    for (int i = 0; i < 3; ++i) hits.hit("hot", kStart);
    CHECK(plan(settings_of(), usage_of({"here"}), 0.95, hits, kStart + 1s).prefetch.empty());
    CHECK(plan(settings_of("never"), usage_of({"here"}), 0.95, hits, kStart + 1s).prefetch.size() == 1);
}

TEST_CASE_METHOD(HouseFixture, "three hot modules where two have room below the watermark do not take turns",
                 "[actors][trigger]") {
    for (const char* name : {"a", "b", "c"})
        disk[std::string("root/") + name] = FakeSource{std::string("gen-") + name, 320};
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 3; ++i)
        for (const char* name : {"a", "b", "c"}) ask(name);
    CHECK(loads == 3);
    for (int i = 0; i < 10; ++i) pass(1s);
    CHECK(loads == 3);
    CHECK(cache().copies.size() == 2);
}
