// Slots and budgets: whole sets, who waits for whom, arenas in pieces.

#include "modules_fixture.hpp"

#include <algorithm>

using namespace attune;

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
    for (int tick = 0; tick < 9 && !served; ++tick) {  // drain_ms, and the answers that had begun
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
