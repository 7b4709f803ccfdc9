#include "house_fixture.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attune;

namespace {

/// A house with modules a, b, c, ... under its root, 100 bytes each.
class ModulesFixture : public HouseFixture {
public:
    void with(const std::string& names) {
        for (const char c : names) disk["root/" + std::string(1, c)] = FakeSource{std::string("gen-") + c};
    }
    void check_clean() {
        run();
        CHECK(engine->broken_rules.empty());
        CHECK(engine->running() == 0);
        CHECK(cache().leases.empty());
        CHECK(cache().line.empty());
        CHECK(cache().loads.empty());
        std::uint64_t host = 0;
        std::uint64_t device = 0;
        for (const auto& [generation, copy] : cache().copies) {
            CHECK(copy->leases == 0);
            CHECK(copy->users == 0);
            host += copy->module->host_bytes;
            if (copy->place == Copy::Place::resident) device += copy->slot_bytes;
        }
        CHECK(cache().host_used == host);
        CHECK(cache().device_used == device);
        CHECK(*live_bytes == host);
    }
};

ColdPolicy wait_policy() { return ColdPolicy::wait; }

}  // namespace

TEST_CASE_METHOD(ModulesFixture, "what lies under the roots is listed cold and has no generation yet",
                 "[actors][cache]") {
    with("ab");
    start();
    REQUIRE(modules().size() == 2);
    CHECK(tier("a") == Tier::cold);
    CHECK_FALSE(module("a")->generation.has_value());
    CHECK(loads == 0);
    CHECK(gateway->ready(nullptr));
}

TEST_CASE_METHOD(ModulesFixture, "a module that fails inspection is listed failed with its reason",
                 "[actors][cache][B12]") {
    with("ab");
    disk["root/a"].inspect_error = make_error(Errc::invalid_module, "rank 99 is over the limit");
    start();
    CHECK(tier("a") == Tier::failed);
    CHECK(module("a")->last_error == "rank 99 is over the limit");
    const Seen seen = ask("a");
    CHECK(seen->code() == Errc::invalid_module);
    CHECK(seen->error->message.find("rank 99") != std::string::npos);
    CHECK(ask("b")->ok());
}

TEST_CASE_METHOD(ModulesFixture, "B18: an unknown name is 404 with vLLM's words and never the base",
                 "[actors][cache][B18]") {
    with("a");
    start();
    const Seen good = ask("a");
    const Seen bad = ask("nobody");
    const Seen base = ask("base");
    CHECK(good->ok());
    CHECK(base->ok());
    CHECK(bad->code() == Errc::unknown_model);
    CHECK(bad->error->message == "The model `nobody` does not exist.");
    CHECK(bad->error->param == "model");
    CHECK(bad->text.empty());
    check_clean();
}

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

TEST_CASE_METHOD(ModulesFixture, "a set is made resident whole or not at all", "[actors][cache]") {
    with("abcd");
    device_bytes = 200;
    settings.modules.host_bytes = 400;
    settings.cold.policy = ColdPolicy::wait;
    start();
    GenerationRequest first = request("base", 5);
    first.modules = {{"a", 1.0}, {"b", 0.5}};
    GenerationRequest second = request("base", 5);
    second.modules = {{"c", 1.0}, {"d", 1.0}};
    GenerationRequest third = request("base", 5);
    third.modules = {{"b", 1.0}, {"c", 1.0}};
    hold_loads(true);
    const Seen one = ask(first);
    const Seen two = ask(second);
    const Seen three = ask(third);
    hold_loads(false);
    run();
    CHECK(one->text == "ababababab");
    CHECK(two->text == "cdcdcdcdcd");
    CHECK(three->text == "bcbcbcbcbc");
    REQUIRE(one->finished->served.size() == 1);
    CHECK(one->finished->served[0].modules[1].weight == 0.5);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "two requests that want each other's half both end, with room for two halves only",
                 "[actors][cache]") {
    with("abcd");
    settings.modules.host_bytes = 200;
    device_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    std::vector<Seen> all;
    for (int i = 0; i < 10; ++i) {
        GenerationRequest wish = request("base", 2);
        wish.modules =
            i % 2 ? std::vector<WeightedModule>{{"a", 1}, {"b", 1}} : std::vector<WeightedModule>{{"b", 1}, {"c", 1}};
        if (i % 3 == 0) wish.modules = {{"d", 1}, {"a", 1}};
        all.push_back(ask(wish));
    }
    for (const Seen& seen : all) CHECK(seen->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a set that can never fit is refused at once with both sizes", "[actors][cache]") {
    with("ab");
    settings.modules.host_bytes = 150;
    start();
    GenerationRequest both = request("base");
    both.modules = {{"a", 1}, {"b", 1}};
    const Seen seen = ask(both);
    CHECK(seen->code() == Errc::invalid_argument);
    CHECK(seen->error->message.find("200") != std::string::npos);
    CHECK(seen->error->message.find("150") != std::string::npos);
    CHECK(loads == 0);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a set larger than the device is refused as soon as its sizes are known",
                 "[actors][cache]") {
    with("ab");
    device_bytes = 150;
    settings.cold.policy = ColdPolicy::wait;
    start();
    GenerationRequest both = request("base");
    both.modules = {{"a", 1}, {"b", 1}};
    CHECK(ask(both)->code() == Errc::invalid_argument);
    CHECK(ask("a")->ok());
    const int before = loads;
    both.id = gateway->next_id();
    CHECK(ask(both)->code() == Errc::invalid_argument);
    CHECK(loads == before);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "B20: a rare module gets its place although others are always busy",
                 "[actors][cache][B20]") {
    with("abc");
    device_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a", 1);
    ask("b", 1);
    hold_steps(true);
    // Endless overlapping streams on a and b: each new one comes before the last one has ended.
    std::vector<Seen> hot;
    hot.push_back(ask("a", 4));
    hot.push_back(ask("b", 4));
    const Seen rare = ask("c", 2);
    bool served = false;
    for (int tick = 0; tick < 40 && !served; ++tick) {
        now += std::chrono::milliseconds(100);
        if (tick % 2 == 0)
            hot.push_back(ask("a", 4));
        else
            hot.push_back(ask("b", 4));
        step();
        served = rare->admitted.has_value();
    }
    CHECK(served);
    hold_steps(false);
    run();
    CHECK(rare->text == "cc");
    for (const Seen& seen : hot) CHECK(seen->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "B20: a set that pins keep out does not keep others waiting", "[actors][cache][B20]") {
    with("abcd");
    device_bytes = 200;
    settings.cold.policy = ColdPolicy::wait;
    start();
    order("a", ModuleOrder::pin);
    GenerationRequest set = request("base");
    set.modules = {{"b", 1}, {"c", 1}};
    const Seen stuck = ask(set);
    now += std::chrono::seconds(2);
    CHECK(ask("d")->ok());
    CHECK(ask("b")->ok());
    CHECK_FALSE(stuck->admitted.has_value());
    order("a", ModuleOrder::unpin);
    order("a", ModuleOrder::unload);
    CHECK(stuck->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "an arena in pieces is emptied of idle modules and asked again", "[actors][cache]") {
    with("ab");
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    engine->next_install = make_error(Errc::no_room, "no place");
    const Seen seen = ask("b");
    CHECK(seen->ok());
    CHECK(tier("a") == Tier::host);
    CHECK(tier("b") == Tier::resident);
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "an arena in pieces is emptied for everybody who waits for the same module",
                 "[actors][cache]") {
    with("ab");
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    hold_steps(true);
    const Seen first = ask("b");
    const Seen second = ask("b");  // both wait for one install
    engine->next_install = make_error(Errc::no_room, "no place");
    hold_steps(false);
    run();
    CHECK(first->ok());
    CHECK(second->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a set that an arena in pieces cannot hold waits, it does not spin",
                 "[actors][cache]") {
    with("abc");
    settings.cold.policy = ColdPolicy::wait;
    start();
    engine->has_no_place = [this](const Module& module) {
        return module.id.generation == "gen-b" && engine->has_installed("gen-c");
    };
    ask("c", 1);
    hold_steps(true);
    const Seen busy = ask("c", 60);
    step();
    GenerationRequest both = request("base", 2);
    both.modules = {{"a", 1}, {"b", 1}};
    const Seen set = ask(both);
    for (int i = 0; i < 50; ++i) step();
    CHECK_FALSE(set->admitted.has_value());
    CHECK(engine->installs <= 4);  // c, and a few times a
    hold_steps(false);
    run();
    CHECK(busy->ok());
    CHECK(set->text == "abab");
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a module the slots cannot hold fails its request and nothing else",
                 "[actors][cache]") {
    with("ab");
    settings.cold.policy = ColdPolicy::wait;
    start();
    engine->next_install = make_error(Errc::invalid_module, "rank 80 does not fit");
    CHECK(ask("a")->code() == Errc::invalid_module);
    CHECK(ask("b")->ok());
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "fallback requests without room leave one wish behind, not one each",
                 "[actors][cache]") {
    with("ab");
    settings.modules.host_bytes = 100;
    start();
    GenerationRequest holding = request("a", 50);
    holding.cold = ColdPolicy::wait;
    hold_steps(true);
    const Seen busy = ask(holding);
    while (!busy->admitted && step()) {
    }
    std::vector<Seen> all;
    for (int i = 0; i < 10; ++i) {
        GenerationRequest wish = request("b", 2);
        wish.cold = ColdPolicy::fallback;
        all.push_back(ask(wish));
    }
    CHECK(cache().leases.size() == 1);
    CHECK(cache().line.size() == 1);
    hold_steps(false);
    run();
    for (const Seen& seen : all) CHECK(seen->text == "..");
    CHECK(tier("b") == Tier::resident);  // as soon as there was room
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "A19: a budget for two and a half: the third of three waits, and the gauges show why",
                 "[actors][cache][A19]") {
    with("abc");
    settings.modules.host_bytes = 250;
    device_bytes = 250;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    std::vector<Seen> all;
    for (const char* name : {"a", "b", "c"}) all.push_back(ask(name));
    const std::string text = metrics();
    const auto bytes = [&](const char* what) {
        return "attune_module_bytes{engine=\"0\",model_name=\"base\",what=\"" + std::string(what) +
               "\",where=\"host\"} ";
    };
    CHECK(text.find(bytes("capacity") + "250") != std::string::npos);
    CHECK(text.find(bytes("used") + "200") != std::string::npos);
    CHECK(tier("c") == Tier::cold);
    hold_loads(false);
    run();
    for (const Seen& seen : all) CHECK(seen->ok());
    check_clean();
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

TEST_CASE_METHOD(ModulesFixture, "a module with an owner is 404 for others and there for its owner and admins",
                 "[actors][cache]") {
    with("a");
    disk["root/a"].owner = "alice";
    start();
    GenerationRequest stranger = request("a");
    stranger.caller = Caller{"bob", false};
    CHECK(ask(stranger)->code() == Errc::unknown_model);
    CHECK(modules(Caller{"bob", false}).empty());
    CHECK(modules(Caller{"alice", false}).size() == 1);
    GenerationRequest owner = request("a");
    owner.caller = Caller{"alice", false};
    CHECK(ask(owner)->ok());
    CHECK(ask("a")->ok());
}

TEST_CASE_METHOD(ModulesFixture, "F1: the gauges agree with the list: resident without traffic, gone after eviction",
                 "[actors][cache][metrics][F1]") {
    with("ab");
    device_bytes = 100;
    start();
    CHECK(order("a", ModuleOrder::load)->ok());
    CHECK(tier("a") == Tier::resident);
    std::string text = metrics();
    CHECK(text.find("attune_modules{engine=\"0\",model_name=\"base\",tier=\"resident\"} 1") != std::string::npos);
    CHECK(text.find("adapter_name=\"a\",engine=\"0\",level=\"gpu\"") != std::string::npos);
    CHECK(text.find("running_lora_adapters=\"\"") != std::string::npos);
    CHECK(order("a", ModuleOrder::unload)->ok());
    text = metrics();
    CHECK(text.find("attune_modules{engine=\"0\",model_name=\"base\",tier=\"resident\"} 0") != std::string::npos);
    CHECK(text.find("adapter_name=\"a\"") == std::string::npos);
    CHECK(engine->installed() == 0);
}

TEST_CASE_METHOD(ModulesFixture, "F1: running and waiting modules are named in the gateway protocol's gauge",
                 "[actors][metrics][F1]") {
    with("ab");
    settings.cold.policy = wait_policy();
    start();
    ask("a", 1);
    hold_steps(true);
    hold_loads(true);
    ask("a", 5);
    ask("b", 5);
    const std::string text = metrics();
    CHECK(text.find("running_lora_adapters=\"a\",waiting_lora_adapters=\"b\"") != std::string::npos);
    hold_steps(false);
    hold_loads(false);
    run();
    CHECK(metrics().find("running_lora_adapters=\"\",waiting_lora_adapters=\"\"") != std::string::npos);
}

TEST_CASE_METHOD(ModulesFixture, "a rescan finds new modules, forgets vanished ones and keeps running requests",
                 "[actors][cache]") {
    with("ab");
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a", 1);
    hold_steps(true);
    const Seen running = ask("a", 5);
    step();
    disk.erase("root/a");
    disk["root/c"] = FakeSource{"gen-c"};
    caf::anon_send(peers->cache_manager, reload_atom_v);
    run();
    CHECK_FALSE(module("a").has_value());
    CHECK(tier("c") == Tier::cold);
    CHECK(ask("a")->code() == Errc::unknown_model);
    hold_steps(false);
    run();
    CHECK(running->text == "aaaaa");
    CHECK(engine->installed() == 0);  // its last lease has ended
    check_clean();
}

TEST_CASE_METHOD(ModulesFixture, "a rescan that cannot read a module keeps its owner", "[actors][cache]") {
    with("a");
    disk["root/a"].owner = "alice";
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(ask("a")->ok());
    disk["root/a"].owner.clear();  // what is not read says nothing
    disk["root/a"].inspect_error = make_error(Errc::invalid_module, "half written");
    caf::anon_send(peers->cache_manager, reload_atom_v);
    run();
    GenerationRequest stranger = request("a");
    stranger.caller = Caller{"bob", false};
    CHECK(ask(stranger)->code() == Errc::unknown_model);
    CHECK(modules(Caller{"bob", false}).empty());
    CHECK(module("a")->last_error == "half written");
}

TEST_CASE_METHOD(ModulesFixture, "a pinned name that no root holds is told", "[actors][cache]") {
    with("a");
    settings.modules.pinned = {"a", "misspelt"};
    start();
    CHECK(cache().refused == 1);
    CHECK(tier("a") == Tier::resident);
}

TEST_CASE_METHOD(ModulesFixture, "pinned modules of the settings are resident before anyone asks", "[actors][cache]") {
    with("ab");
    settings.modules.pinned = {"b"};
    start();
    CHECK(tier("b") == Tier::resident);
    CHECK(tier("a") == Tier::cold);
    CHECK(module("b")->pinned);
}
