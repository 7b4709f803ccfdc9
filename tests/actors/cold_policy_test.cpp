// What a request gets while its module is not resident.

#include "router_fixture.hpp"

using namespace attune;
using namespace std::chrono_literals;

TEST_CASE_METHOD(RouterFixture, "wait holds a request until its module is resident", "[actors][router]") {
    start();
    hold_loads(true);
    const Seen seen = ask(with_policy(ColdPolicy::wait));
    CHECK_FALSE(seen->admitted.has_value());
    CHECK(engine->steps == 0);
    hold_loads(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->admitted->cold == ColdWord::wait);
    CHECK(seen->text == "aaaa");
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "wait ends with 504 when the module is not ready in time", "[actors][router]") {
    start();
    hold_loads(true);
    GenerationRequest wish = with_policy(ColdPolicy::wait);
    wish.timeout_ms = 2000;
    const Seen seen = ask(wish);
    pass(1900ms);
    CHECK(seen->ends == 0);
    pass(200ms);
    CHECK(seen->code() == Errc::timeout);
    hold_loads(false);
    run();
    CHECK(seen->ended());
    CHECK(tier("a") == Tier::host);  // the load that ran was not thrown away
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a deadline before the time-out ends the wait", "[actors][router]") {
    start();
    hold_loads(true);
    GenerationRequest wish = with_policy(ColdPolicy::wait);
    wish.deadline_ms = 500;
    const Seen seen = ask(wish);
    pass(600ms);
    CHECK(seen->code() == Errc::timeout);
}

TEST_CASE_METHOD(RouterFixture, "fallback: the base to the end, and the module is there for the next one",
                 "[actors][router]") {
    start();
    hold_loads(true);
    const Seen first = ask(with_policy(ColdPolicy::fallback));
    REQUIRE(first->ok());
    CHECK(first->text == "....");
    CHECK(first->admitted->cold == ColdWord::fallback);
    CHECK(first->admitted->route.modules == std::vector<std::string>{"a"});
    CHECK(first->finished->served[0].modules.empty());
    hold_loads(false);
    run();
    CHECK(tier("a") == Tier::resident);
    const Seen second = ask(with_policy(ColdPolicy::fallback));
    CHECK(second->text == "aaaa");
    CHECK(second->admitted->cold == ColdWord::warm);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "upgrade: the base starts at once and the module goes on from the switch",
                 "[actors][router]") {
    start();
    hold_loads(true);
    hold_steps(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade, 6));
    step();
    step();
    CHECK(seen->text == "..");
    hold_loads(false);
    run();
    step();  // install
    step();
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->admitted->cold == ColdWord::upgrade);
    REQUIRE(seen->switched.has_value());
    CHECK(seen->text.substr(0, 2) == "..");
    CHECK(seen->text.back() == 'a');
    REQUIRE(seen->finished->served.size() == 2);
    CHECK(seen->finished->served[0].tokens == seen->switched->base_tokens);
    CHECK(seen->finished->served[0].tokens + seen->finished->served[1].tokens == 6);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a load that fails before the prompt is ready leaves the base to answer, but for wait",
                 "[actors][router]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    start();
    for (const ColdPolicy policy : {ColdPolicy::fallback, ColdPolicy::upgrade, ColdPolicy::revise, ColdPolicy::wait}) {
        order("a", ModuleOrder::unload);
        disk["root/a"].mtime += 1;
        caf::anon_send(peers->cache_manager, reload_atom_v);
        run();
        hold_prompts(true);
        const Seen seen = ask(with_policy(policy));
        hold_prompts(false);
        run();
        CAPTURE(static_cast<int>(policy));
        CHECK(seen->ended());
        CHECK(seen->ok() == (policy != ColdPolicy::wait));
        if (policy == ColdPolicy::wait) CHECK(seen->code() == Errc::invalid_module);
        if (seen->ok()) CHECK(seen->text == "....");
        if (seen->admitted) CHECK(seen->admitted->cold != ColdWord::warm);
        check_idle();
    }
}

TEST_CASE_METHOD(RouterFixture, "upgrade: a load that fails in mid-answer leaves the base to finish",
                 "[actors][router]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    start();
    hold_loads(true);
    hold_steps(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade, 5));
    step();
    hold_loads(false);
    run();
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == ".....");
    CHECK_FALSE(seen->switched.has_value());
    CHECK(ask("a")->code() == Errc::invalid_module);  // known to be bad now: never silently the base
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "upgrade: an answer that ends first gives its lease back and the load goes on",
                 "[actors][router]") {
    start();
    hold_loads(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade, 2));
    CHECK(seen->text == "..");
    CHECK(cache().leases.empty());
    hold_loads(false);
    run();
    CHECK(tier("a") == Tier::host);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "upgrade: a request that cannot be switched goes on with the base and frees the slot",
                 "[actors][router]") {
    start();
    engine->refuses_switch = true;
    hold_steps(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade, 8));
    for (int i = 0; i < 4; ++i) step();
    CHECK(cache().leases.empty());
    hold_steps(false);
    run();
    CHECK(seen->text == "........");
    CHECK_FALSE(seen->switched.has_value());
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "upgrade: a module that is ready before the prompt makes the whole answer",
                 "[actors][router]") {
    start();
    hold_prompts(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade));
    CHECK(tier("a") == Tier::resident);
    hold_prompts(false);
    run();
    CHECK(seen->text == "aaaa");
    CHECK(seen->admitted->cold == ColdWord::upgrade);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a module in host memory is warm: its request waits for the install only",
                 "[actors][router]") {
    device_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    ask("b");
    CHECK(tier("a") == Tier::host);
    const Seen seen = ask(with_policy(ColdPolicy::fallback));
    CHECK(seen->text == "aaaa");
    CHECK(seen->admitted->cold == ColdWord::warm);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a module in host memory without room follows the cold policy", "[actors][router]") {
    device_bytes = 100;
    settings.cold.policy = ColdPolicy::wait;
    start();
    ask("a");
    ask("b");
    hold_steps(true);
    const Seen busy = ask("b", 5);
    step();
    const Seen seen = ask(with_policy(ColdPolicy::fallback, 2));
    hold_steps(false);
    run();
    CHECK(busy->text == "bbbbb");
    CHECK(seen->text == "..");
    CHECK(seen->admitted->cold == ColdWord::fallback);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "the request's policy comes before the manifest's and that before the setting's",
                 "[actors][router]") {
    disk["root/a"].cold = ColdPolicy::fallback;
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    hold_steps(true);
    ask(request("a", 9));
    step();
    const Seen by_setting = ask(request("b", 9));
    const Seen by_request = ask(with_policy(ColdPolicy::upgrade, 9));
    const Seen by_manifest = ask(request("a", 9));
    step();
    step();
    CHECK(by_manifest->admitted->cold == ColdWord::fallback);
    CHECK(by_request->admitted->cold == ColdWord::upgrade);
    CHECK_FALSE(by_setting->admitted.has_value());
    hold_loads(false);
    hold_steps(false);
    run();
    CHECK(by_setting->admitted->cold == ColdWord::wait);
}

TEST_CASE_METHOD(RouterFixture, "a cancel under upgrade while the base answers frees base, load and lease",
                 "[actors][router][C4]") {
    start();
    hold_loads(true);
    hold_steps(true);
    const Seen seen = ask(with_policy(ColdPolicy::upgrade, 100));
    step();
    gateway->cancel(last_id());
    run();
    hold_steps(false);
    run();
    CHECK(seen->ok());
    CHECK(cache().leases.empty());
    hold_loads(false);
    run();
    CHECK(engine->switches == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a module that was ready in time is no time-out when the prompt takes long",
                 "[actors][router]") {
    start();
    hold_prompts(true);
    hold_loads(true);
    const Seen seen = ask(with_policy(ColdPolicy::wait));
    hold_loads(false);
    run();
    CHECK(tier("a") == Tier::resident);
    pass(31s);
    CHECK(seen->ends == 0);
    hold_prompts(false);
    run();
    CHECK(seen->text == "aaaa");
    check_idle();
}
