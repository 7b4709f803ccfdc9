// The name table: what the roots hold, who sees it, and what the gauges say of it.

#include "modules_fixture.hpp"

#include <algorithm>

using namespace attune;

namespace {

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
