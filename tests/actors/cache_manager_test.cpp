#include "modules_fixture.hpp"

#include <algorithm>

using namespace attune;

TEST_CASE_METHOD(ModulesFixture, "A7: twenty requests for one cold module are one load and one install",
                 "[actors][cache][A7]") {
    with("a");
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    std::vector<Seen> all;
    for (int i = 0; i < 20; ++i) all.push_back(ask("a"));
    CHECK(tier("a") == Tier::loading);
    CHECK(module("a")->leases == 20);
    hold_loads(false);
    run();
    for (const Seen& seen : all) CHECK(seen->ok());
    CHECK(loads == 1);
    CHECK(engine->installs == 1);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A21: two names of one content share one copy and one slot", "[actors][cache][A21]") {
    disk["root/a"] = FakeSource{"same"};
    disk["root/b"] = FakeSource{"same"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(ask("a")->text == "aaa");
    CHECK(ask("b")->text == "bbb");
    CHECK(engine->installed() == 1);
    CHECK(cache().host_used == 100);
    CHECK(order("a", ModuleOrder::unload)->ok());
    CHECK(tier("a") == Tier::cold);
    CHECK(tier("b") == Tier::resident);
    CHECK(ask("b")->ok());
    CHECK(remove("b")->ok());
    CHECK(engine->installed() == 0);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A16, A18: an evicted module comes back with its own weights",
                 "[actors][cache][A16][A18]") {
    with("abc");
    device_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int round = 0; round < 3; ++round)
        for (const char* name : {"a", "b", "c"}) {
            const Seen seen = ask(name);
            CHECK(seen->ok());
            CHECK(seen->text == std::string(3, name[0]));
        }
    CHECK(loads == 3);  // the host kept them
    CHECK(engine->removes > 0);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A18: one slot and two modules alternate without an error", "[actors][cache][A18]") {
    with("ab");
    device_bytes = 100;
    settings.modules.host_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 20; ++i) CHECK(ask(i % 2 ? "a" : "b")->ok());
    CHECK(loads == 20);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a leased module is never evicted", "[actors][cache]") {
    with("ab");
    device_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a", 1);
    hold_steps(true);
    const Seen running = ask("a", 100);
    step();
    const Seen waiting = ask("b", 1);
    CHECK_FALSE(waiting->admitted.has_value());
    CHECK(engine->removes == 0);
    hold_steps(false);
    run();
    CHECK(running->text == std::string(100, 'a'));
    CHECK(waiting->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a pinned module stays when others need its room", "[actors][cache]") {
    with("abc");
    device_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(order("a", ModuleOrder::pin)->ok());
    run();
    CHECK(tier("a") == Tier::resident);
    ask("b");
    ask("c");
    ask("b");
    CHECK(tier("a") == Tier::resident);
    CHECK(module("a")->pinned);
    CHECK(order("a", ModuleOrder::unload)->code() == Errc::conflict);
    CHECK(order("a", ModuleOrder::unpin)->ok());
    ask("b");
    ask("c");
    CHECK(tier("a") == Tier::host);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "eviction by cost keeps what is asked for often, until nobody asks any more",
                 "[actors][cache]") {
    with("abcd");
    settings.modules.host_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 5; ++i) ask("a");
    for (const char* passing : {"b", "c", "b", "c"}) {  // least recently used, `a` would have had to leave
        now += std::chrono::seconds(1);
        CHECK(ask(passing)->ok());
        CHECK(tier("a") == Tier::resident);
    }
    CHECK(loads_of["root/a"] == 1);
    now += std::chrono::minutes(10);  // its hits have faded
    for (const char* passing : {"b", "d"}) {
        now += std::chrono::seconds(1);
        ask(passing);
    }
    CHECK(tier("a") == Tier::cold);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a second group of modules pushes the first out, not itself", "[actors][cache]") {
    with("abcdef");
    settings.modules.host_bytes = 300;
    settings.cold.policy = ColdPolicy::wait;
    start();
    for (int i = 0; i < 50; ++i)
        for (const char* name : {"a", "b", "c"}) ask(name);
    loads = 0;
    for (int i = 0; i < 50; ++i)
        for (const char* name : {"d", "e", "f"}) ask(name);
    CHECK(loads <= 3 + 2);  // each once, and little turmoil while the first group's hits still count
    for (const char* name : {"d", "e", "f"}) CHECK(tier(name) == Tier::resident);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "with eviction lru the least recently used leaves the host", "[actors][cache]") {
    with("abc");
    settings.modules.eviction = "lru";
    settings.modules.host_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    now += std::chrono::seconds(1);
    ask("b");
    now += std::chrono::seconds(1);
    ask("a");
    now += std::chrono::seconds(1);
    ask("c");
    CHECK(tier("b") == Tier::cold);
    CHECK(tier("a") == Tier::resident);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "sixty cold modules at once: two loads at a time, bounded memory, sixty answers",
                 "[actors][cache]") {
    for (int i = 0; i < 60; ++i) disk["root/m" + std::to_string(i)] = FakeSource{"gen-" + std::to_string(i)};
    settings.modules.host_bytes = 500;
    settings.modules.loaders = 2;
    device_bytes = 300;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    std::vector<Seen> all;
    for (int i = 0; i < 60; ++i) all.push_back(ask("m" + std::to_string(i)));
    int running = 0;
    for (const LoadPtr& load : cache().loads) running += load->running;
    CHECK(running == 2);
    CHECK(cache().loads.size() == 5);  // the budget's worth; nothing else is reserved
    CHECK(cache().host_used == 500);
    hold_loads(false);
    run();
    for (const Seen& seen : all) CHECK(seen->ok());
    CHECK(loads == 60);
    CHECK(peak_bytes <= 500);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "sixty cold modules under upgrade: the base answers all at once", "[actors][cache]") {
    for (int i = 0; i < 60; ++i) disk["root/m" + std::to_string(i)] = FakeSource{"gen-" + std::to_string(i)};
    settings.modules.host_bytes = 500;
    start();
    hold_loads(true);
    std::vector<Seen> all;
    for (int i = 0; i < 60; ++i) all.push_back(ask("m" + std::to_string(i)));
    for (const Seen& seen : all) {
        CHECK(seen->ok());
        CHECK(seen->text == "...");
        CHECK(seen->admitted->cold == ColdWord::upgrade);
    }
    hold_loads(false);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A12: a bad module fails only those who asked for it", "[actors][cache][A12]") {
    with("a");
    disk["root/a"].load_error = make_error(Errc::invalid_module, "lora_A is [16, 4096], the model wants [r, 8]");
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_steps(true);
    std::vector<Seen> base;
    for (int i = 0; i < 4; ++i) base.push_back(ask("base", 10));
    step();
    const Seen bad = ask("a");
    CHECK(bad->code() == Errc::invalid_module);
    CHECK(bad->error->message.find("lora_A is [16, 4096]") != std::string::npos);
    hold_steps(false);
    run();
    for (const Seen& seen : base) CHECK(seen->text == "..........");
    CHECK(tier("a") == Tier::failed);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A22: a failed module delays nobody and is not read again for every request",
                 "[actors][cache][A22]") {
    with("abc");
    disk["root/a"].load_error = make_error(Errc::invalid_module, "NaN in lora_B");
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(ask("a")->code() == Errc::invalid_module);
    CHECK(ask("b")->ok());
    CHECK(ask("c")->ok());
    for (int i = 0; i < 5; ++i) CHECK(ask("a")->code() == Errc::invalid_module);
    CHECK(loads_of["root/a"] == 1);
    CHECK(module("a")->last_error == "NaN in lora_B");
    disk["root/a"].load_error.reset();
    CHECK(order("a", ModuleOrder::load)->ok());  // an order looks again
    CHECK(ask("a")->ok());
    CHECK_FALSE(module("a")->last_error.has_value());
}

TEST_CASE_METHOD(ModulesFixture, "A22: a failure that may pass is 503 and tried again after a growing pause",
                 "[actors][cache][A22]") {
    with("a");
    disk["root/a"].load_error = make_error(Errc::io, "read error");
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(ask("a")->code() == Errc::unavailable);
    CHECK(ask("a")->code() == Errc::unavailable);
    CHECK(loads == 1);
    now += std::chrono::milliseconds(1100);
    CHECK(ask("a")->code() == Errc::unavailable);
    CHECK(loads == 2);
    now += std::chrono::milliseconds(1100);
    CHECK(ask("a")->code() == Errc::unavailable);
    CHECK(loads == 2);  // the second pause is longer
    now += std::chrono::seconds(2);
    disk["root/a"].load_error.reset();
    CHECK(ask("a")->ok());
}

TEST_CASE_METHOD(ModulesFixture, "a load that takes too long is told to those who wait", "[actors][cache]") {
    with("a");
    settings.modules.load_timeout_s = 5;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen seen = ask("a");
    pass(std::chrono::seconds(6));
    CHECK(seen->code() == Errc::unavailable);
    CHECK(cache().host_used == 100);  // the loader still holds the memory
    hold_loads(false);
    run();
    check_clean();
}
