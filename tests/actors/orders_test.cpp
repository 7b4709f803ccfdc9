#include "house_fixture.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attune;

TEST_CASE_METHOD(HouseFixture, "A7: twenty concurrent loads of one name and path are one load with one answer",
                 "[actors][orders][A7]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    start();
    std::vector<std::shared_ptr<Load>> all;
    for (int i = 0; i < 20; ++i) all.push_back(load("x", "lib/x"));
    run();
    for (const auto& one : all) {
        REQUIRE(one->ok());
        CHECK((*one->answer)->generation == "gen-x");
    }
    CHECK(loads == 1);
    CHECK(modules().size() == 1);
}

TEST_CASE_METHOD(HouseFixture, "A8: two paths for one name at the same moment: one wins and the table holds it",
                 "[actors][orders][A8]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    disk["lib/y"] = FakeSource{"gen-y"};
    start();
    const auto first = load("m", "lib/x");
    const auto second = load("m", "lib/y");
    run();
    CHECK(first->ok());
    CHECK(second->code() == Errc::already_exists);
    CHECK(module("m")->generation == "gen-x");
}

TEST_CASE_METHOD(HouseFixture, "A13: a name appears only after the whole check", "[actors][orders][A13]") {
    disk["lib/bad"] = FakeSource{"gen"};
    disk["lib/bad"].load_error = make_error(Errc::invalid_module, "adapter_model.safetensors is missing");
    start();
    hold_loads(true);
    const auto pending = load("bad", "lib/bad");
    run();
    CHECK(modules().empty());
    CHECK(ask("bad")->code() == Errc::unknown_model);
    hold_loads(false);
    run();
    CHECK(pending->code() == Errc::invalid_module);
    CHECK(modules().empty());
    CHECK(*live_bytes == 0);
    CHECK(cache().host_used == 0);
    CHECK(ask("base")->ok());
}

TEST_CASE_METHOD(HouseFixture, "a name that exists is 400 in vLLM's words unless loaded in place", "[actors][orders]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    start();
    CHECK((load("m", "lib/x"), run(), true));
    const auto again = load("m", "lib/x");
    run();
    CHECK(again->code() == Errc::already_exists);
    CHECK(again->answer->error().message == "The lora adapter 'm' has already been loaded.");
}

TEST_CASE_METHOD(HouseFixture, "a path that is not there, outside or a URL has one answer", "[actors][orders]") {
    start();
    const auto gone = load("m", "lib/none");
    run();
    CHECK(gone->code() == Errc::not_found);
}

TEST_CASE_METHOD(HouseFixture, "wrong names are refused before any look at the disk", "[actors][orders]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    start();
    for (const char* name : {"", "auto", "base", "a/b", ".hidden", "trailing-"}) {
        const auto refused = load(name, "lib/x");
        run();
        CHECK(refused->code() == Errc::invalid_argument);
        CHECK(refused->answer->error().param == "lora_name");
    }
    CHECK(loads == 0);
}

TEST_CASE_METHOD(HouseFixture, "the number of names is limited", "[actors][orders]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    settings.limits.module_names = 2;
    start();
    const auto one = load("m1", "lib/x");
    run();
    const auto two = load("m2", "lib/x");
    run();
    const auto three = load("m3", "lib/x");
    run();
    CHECK(one->ok());
    CHECK(two->ok());
    CHECK(three->code() == Errc::overloaded);
    CHECK(loads == 2);  // single flight, but not at the same time: the second read found the copy again
    CHECK(cache().copies.size() == 1);
}

TEST_CASE_METHOD(HouseFixture,
                 "A24: loading in place moves the name in one step and running requests finish on the old",
                 "[actors][orders][A24]") {
    disk["lib/x"] = FakeSource{"v1"};
    device_bytes = 100;  // one slot
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x");
    run();
    hold_steps(true);
    const Seen old = ask("a", 6);
    step();
    step();
    disk["lib/x"].generation = "v2";
    disk["lib/x"].mtime = 2;
    const auto swap = load("a", "lib/x", true, "v1");
    run();
    REQUIRE(swap->ok());
    CHECK(module("a")->generation == "v2");
    const Seen next = ask("a", 2);
    CHECK_FALSE(next->admitted.has_value());  // the only slot is in use
    hold_steps(false);
    run();
    REQUIRE(old->ok());
    REQUIRE(old->finished->served.size() == 1);
    CHECK(old->finished->served[0].modules[0].id.generation == "v1");
    CHECK(old->finished->served[0].tokens == 6);
    REQUIRE(next->ok());
    CHECK(next->finished->served[0].modules[0].id.generation == "v2");
    CHECK(cache().copies.size() == 1);
    CHECK(engine->broken_rules.empty());
}

TEST_CASE_METHOD(HouseFixture, "an expected generation that does not match is a conflict and changes nothing",
                 "[actors][orders]") {
    disk["lib/x"] = FakeSource{"v1"};
    start();
    load("a", "lib/x");
    run();
    disk["lib/x"].generation = "v2";
    disk["lib/x"].mtime = 2;
    const auto swap = load("a", "lib/x", true, "v0");
    run();
    CHECK(swap->code() == Errc::conflict);
    CHECK(module("a")->generation == "v1");
    CHECK(cache().copies.size() == 1);
    CHECK(ask("a")->ok());
}

TEST_CASE_METHOD(HouseFixture, "a failed swap leaves the name where it was", "[actors][orders]") {
    disk["lib/x"] = FakeSource{"v1"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x");
    run();
    disk["lib/x"].load_error = make_error(Errc::invalid_module, "truncated");
    disk["lib/x"].mtime = 2;
    const auto swap = load("a", "lib/x", true);
    run();
    CHECK(swap->code() == Errc::invalid_module);
    CHECK(module("a")->generation == "v1");
    CHECK_FALSE(module("a")->last_error.has_value());
    CHECK(ask("a")->text == "aaa");
}

TEST_CASE_METHOD(HouseFixture, "A10: an in-place load reads once, not once per request", "[actors][orders][A10]") {
    disk["lib/x"] = FakeSource{"v1"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x", true);
    run();
    for (int i = 0; i < 50; ++i) CHECK(ask("a", 1)->ok());
    CHECK(loads == 1);
}

TEST_CASE_METHOD(HouseFixture, "A20: two hundred in-place loads under traffic keep memory flat",
                 "[actors][orders][A20]") {
    disk["lib/x"] = FakeSource{"v0"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x");
    run();
    for (int i = 1; i <= 200; ++i) {
        disk["lib/x"].generation = "v" + std::to_string(i);
        disk["lib/x"].mtime = i + 1;
        hold_steps(true);
        const Seen seen = ask("a", 2);
        const auto swap = load("a", "lib/x", true);
        run();
        REQUIRE(*live_bytes <= 200);
        hold_steps(false);
        run();
        REQUIRE(swap->ok());
        REQUIRE(seen->ok());
    }
    CHECK(*live_bytes == 100);
    CHECK(engine->installed() <= 1);
    CHECK(engine->broken_rules.empty());
}

TEST_CASE_METHOD(HouseFixture,
                 "A11: replacing a module ten times under steady requests gives no 404 and whole versions",
                 "[actors][orders][A11]") {
    disk["lib/x"] = FakeSource{"v0"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x");
    run();
    std::vector<Seen> all;
    for (int i = 1; i <= 10; ++i) {
        all.push_back(ask("a", 4));
        disk["lib/x"].generation = "v" + std::to_string(i);
        disk["lib/x"].mtime = i + 1;
        load("a", "lib/x", true);
        all.push_back(ask("a", 4));
    }
    run();
    for (const Seen& seen : all) {
        REQUIRE(seen->ok());
        CHECK(seen->finished->served.size() == 1);
    }
}

TEST_CASE_METHOD(HouseFixture, "one name twice with other content: the second is served with its own generation",
                 "[actors][orders][A1]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    disk["lib/y"] = FakeSource{"gen-y"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("a", "lib/x");
    run();
    CHECK(ask("a")->finished->served[0].modules[0].id.generation == "gen-x");
    CHECK(remove("a")->ok());
    load("a", "lib/y");
    run();
    CHECK(ask("a")->finished->served[0].modules[0].id.generation == "gen-y");
}

TEST_CASE_METHOD(HouseFixture, "A5: loads during decoding leave the running streams alone", "[actors][orders][A5]") {
    for (int i = 0; i < 5; ++i) disk["lib/" + std::to_string(i)] = FakeSource{"gen-" + std::to_string(i)};
    start();
    hold_steps(true);
    std::vector<Seen> streams;
    for (int i = 0; i < 8; ++i) streams.push_back(ask("base", 10));
    for (int i = 0; i < 5; ++i) {
        step();
        load("m" + std::to_string(i), "lib/" + std::to_string(i));
        run();
    }
    hold_steps(false);
    run();
    for (const Seen& seen : streams) CHECK(seen->text == "..........");
    CHECK(engine->installed() == 5);
}

TEST_CASE_METHOD(HouseFixture, "removing a name is 404 when unknown and lets the running request finish",
                 "[actors][orders]") {
    disk["lib/x"] = FakeSource{"gen-x"};
    start();
    const auto unknown = remove("a");
    CHECK(unknown->code() == Errc::unknown_model);
    CHECK(unknown->answer->error().message == "The lora adapter 'a' cannot be found.");
    load("a", "lib/x");
    run();
    hold_steps(true);
    const Seen running = ask("a", 4);
    step();
    CHECK(remove("a")->ok());
    CHECK(engine->installed() == 1);
    hold_steps(false);
    run();
    CHECK(running->text == "aaaa");
    CHECK(engine->installed() == 0);
    CHECK(*live_bytes == 0);
}

TEST_CASE_METHOD(HouseFixture, "removing a name while it loads: who waits is served, the name is gone",
                 "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen seen = ask("a", 2);
    CHECK(remove("a")->ok());
    hold_loads(false);
    run();
    CHECK(seen->text == "aa");
    CHECK(modules().empty());
    CHECK(*live_bytes == 0);
}

TEST_CASE_METHOD(HouseFixture, "a load order without room ends with 503 in time", "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["lib/x"] = FakeSource{"gen-x"};
    settings.modules.host_bytes = 100;
    settings.modules.load_timeout_s = 5;
    start();
    order("a", ModuleOrder::load);
    hold_steps(true);
    const Seen running = ask("a", 10);
    step();
    const auto wanted = load("x", "lib/x");
    run();
    CHECK_FALSE(wanted->answer.has_value());
    pass(std::chrono::seconds(6));
    CHECK(wanted->code() == Errc::no_room);
    CHECK(cache().arriving.empty());
    hold_steps(false);
    run();
    CHECK(running->ok());
}

TEST_CASE_METHOD(HouseFixture, "a pin that finds no room is tried again by the trigger's tick", "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["root/b"] = FakeSource{"gen-b"};
    device_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a", 1);
    hold_steps(true);
    const Seen running = ask("a", 3);
    step();
    CHECK(order("b", ModuleOrder::pin)->ok());
    CHECK(tier("b") == Tier::host);
    hold_steps(false);
    run();
    pass(std::chrono::seconds(2));
    CHECK(running->ok());
    CHECK(tier("b") == Tier::resident);
}

TEST_CASE_METHOD(HouseFixture, "unloading a module while it loads leaves it cold and serves who waits",
                 "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen seen = ask("a", 2);
    CHECK(order("a", ModuleOrder::unload)->ok());
    CHECK(tier("a") == Tier::cold);
    hold_loads(false);
    run();
    CHECK(seen->text == "aa");
    CHECK(tier("a") == Tier::cold);
    CHECK(*live_bytes == 0);
    CHECK(ask("a")->ok());
}

TEST_CASE_METHOD(HouseFixture, "a module that still cannot be read is failed with its present reason",
                 "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["root/a"].inspect_error = make_error(Errc::invalid_module, "no weights");
    start();
    disk["root/a"].inspect_error = make_error(Errc::invalid_module, "rank 99");
    const auto again = order("a", ModuleOrder::load);
    CHECK(again->code() == Errc::invalid_module);
    CHECK(again->answer->error().message.find("rank 99") != std::string::npos);
    CHECK(module("a")->last_error == "rank 99");
}

TEST_CASE_METHOD(HouseFixture, "pin orders without room leave one wish behind", "[actors][orders]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["root/b"] = FakeSource{"gen-b"};
    settings.modules.host_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_steps(true);
    const Seen busy = ask("a", 50);
    for (int i = 0; i < 5; ++i) order("b", ModuleOrder::pin);
    CHECK(std::count_if(cache().line.begin(), cache().line.end(), [](const LeasePtr& one) { return !one->request; }) ==
          1);
    hold_steps(false);
    run();
    CHECK(busy->ok());
    CHECK(tier("b") == Tier::resident);
}

TEST_CASE_METHOD(HouseFixture, "manifests that come by order count where they are trusted always", "[actors][orders]") {
    RouteRule rule;
    rule.modules = {{"m", 1.0}};
    rule.task_ids = {"legal"};
    disk["lib/x"] = FakeSource{"v1"};
    settings.modules.trust_manifests = "always";
    settings.cold.policy = ColdPolicy::wait;
    start();
    load("m", "lib/x");
    run();
    disk["lib/x"].generation = "v2";
    disk["lib/x"].mtime = 2;
    disk["lib/x"].owner = "alice";
    disk["lib/x"].rule = rule;
    load("m", "lib/x", true);
    run();
    CHECK(module("m")->generation == "v2");
    CHECK(module("m")->owner == "alice");
    GenerationRequest routed = request("auto");
    routed.task_id = "legal";
    CHECK(ask(routed)->text == "mmm");
    disk["lib/y"] = FakeSource{"v3"};
    disk["lib/y"].pin = true;
    load("kept", "lib/y");
    run();
    CHECK(module("kept")->pinned);
}
