#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

template <class Actor>
void kill(HouseFixture& house, const Actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    house.run();
}

}  // namespace

TEST_CASE_METHOD(HouseFixture, "a trigger that dies is started again and the house goes on", "[actors][supervisor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    start();
    const TriggerActor before = peers->trigger;
    kill(*this, before);
    refresh_peers();
    CHECK(peers->trigger != before);
    CHECK(gateway->ready(nullptr));
    CHECK(modules().size() == 1);
    CHECK(metrics().find("attune_actor_restarts_total{actor=\"trigger\",engine=\"0\",model_name=\"base\"} 1") !=
          std::string::npos);
}

TEST_CASE_METHOD(HouseFixture, "a loader that dies is started again and its load is done by another",
                 "[actors][supervisor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.modules.loaders = 1;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen seen = ask("a");
    const LoaderActor before = peers->loaders[0];
    caf::anon_send_exit(before, caf::exit_reason::kill);
    scheduler().prioritize(before);
    hold_loads(false);
    run();
    CHECK(seen->ok());
    refresh_peers();
    CHECK(peers->loaders[0] != before);
}

TEST_CASE_METHOD(HouseFixture, "a preparer that dies is started again", "[actors][supervisor]") {
    start();
    for (const PreparerActor& one : peers->preparers) kill(*this, one);
    CHECK(ask("base")->ok());
    CHECK(ask("base")->ok());
}

TEST_CASE_METHOD(HouseFixture, "an auditor that is started again keeps the alarm, and tries the repair again",
                 "[actors][supervisor][audit]") {
    start();
    engine->fake_audit()->flip_bit(0, 0);
    engine->fake_audit()->source_changed = true;
    audit(true);
    kill(*this, peers->auditor);
    refresh_peers();
    const AuditStatus status = audit(false);
    CHECK(status.state == "alarm");
    CHECK_FALSE(gateway->ready(nullptr));
    CHECK(engine->repairs.size() == 2);
}

TEST_CASE_METHOD(HouseFixture, "without its executor the house is not ready and every request ends",
                 "[actors][supervisor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_steps(true);
    hold_loads(true);
    const Seen running = ask("base", 50);
    step();
    const Seen waiting = ask("a");
    hold_steps(false);
    caf::anon_send_exit(peers->executor, caf::exit_reason::kill);
    scheduler().prioritize(peers->executor);
    scheduler().run_once();
    hold_loads(false);
    run();
    CHECK(running->ended());
    CHECK(waiting->ended());
    CHECK_FALSE(gateway->ready(nullptr));
    CHECK(ask("base")->code() == Errc::unavailable);
}

TEST_CASE_METHOD(HouseFixture, "without its cache manager the house is not ready and nobody waits for ever",
                 "[actors][supervisor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen waiting = ask("a");
    kill(*this, peers->cache_manager);
    hold_loads(false);
    run();
    CHECK(waiting->code() == Errc::unavailable);
    CHECK_FALSE(gateway->ready(nullptr));
    bool answered = false;
    gateway->modules({}, [&](Result<std::vector<ModuleStatus>> list) { answered = !list; });
    run();
    CHECK(answered);
}

TEST_CASE_METHOD(HouseFixture, "the house is not ready before the first look at the roots is over",
                 "[actors][supervisor]") {
    start();
    core->health->seeded = false;
    std::string why;
    CHECK_FALSE(gateway->ready(&why));
    CHECK(why == "looking at the module roots");
}
