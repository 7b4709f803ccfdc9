// Cold policy "revise" through router, cache_manager and executor.

#include "router_fixture.hpp"

using namespace attune;
using namespace std::chrono_literals;

namespace {

class ReviseFixture : public RouterFixture {
public:
    GenerationRequest revised(int max_tokens = 3) { return with_policy(ColdPolicy::revise, max_tokens); }
    void check_idle() {
        RouterFixture::check_idle();
        CHECK(tier("a") != Tier::loading);
    }
};

int sum(const Finished& finished) {
    int tokens = 0;
    for (const ServedEntry& entry : finished.served) tokens += entry.tokens;
    return tokens;
}

}  // namespace

TEST_CASE_METHOD(ReviseFixture, "revise: the base answers, waits for the load, and the module answers again",
                 "[actors][revise]") {
    start();
    hold_loads(true);
    const Seen seen = ask(revised());
    CHECK(seen->admitted->cold == ColdWord::revise);
    CHECK(seen->text == "...");
    CHECK(seen->ends == 0);
    CHECK(cache().leases.size() == 1);
    const int steps = engine->steps;
    pass(1ms);
    CHECK(engine->steps == steps);  // the engine does not turn in circles meanwhile
    hold_loads(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->first_text == "...");
    CHECK(seen->text == "aaa");
    CHECK(seen->revised->base_tokens == 3);
    CHECK(seen->revised->modules[0].id.generation == "gen-a");
    CHECK_FALSE(seen->switched);
    CHECK(seen->finished->usage.completion_tokens == 6);
    CHECK(sum(*seen->finished) == 6);
    check_idle();
    CHECK(metrics().find("attune_requests_cold_total{cold=\"revise\"") != std::string::npos);
    CHECK(metrics().find("vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"base\"} 1") !=
          std::string::npos);  // one request, whatever its passes
}

TEST_CASE_METHOD(ReviseFixture, "revise: a module that comes in mid-answer begins at once", "[actors][revise]") {
    start();
    hold_loads(true);
    hold_steps(true);
    const Seen seen = ask(revised(9));
    step();
    step();
    hold_loads(false);
    run();
    step();  // install
    step();
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->first_text.size() < 9);
    CHECK(seen->text == "aaaaaaaaa");
    CHECK(sum(*seen->finished) == seen->finished->usage.completion_tokens);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a load that fails leaves the base's answer, made or in the making",
                 "[actors][revise]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    start();
    hold_loads(true);
    const bool ended = GENERATE(true, false);
    hold_steps(!ended);
    const Seen seen = ask(revised(4));
    if (!ended) step();
    hold_loads(false);
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == "....");
    CHECK(seen->admitted->cold == ColdWord::revise);
    CHECK_FALSE(seen->revised);
    CHECK(seen->finished->served.size() == 1);
    CHECK(seen->finished->usage.completion_tokens == 4);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: the answer waits no longer than the time-out", "[actors][revise]") {
    start();
    hold_loads(true);
    GenerationRequest wish = revised();
    SECTION("of the request") { wish.timeout_ms = 2000; }
    SECTION("or its deadline") { wish.deadline_ms = 2000; }
    const Seen seen = ask(wish);
    pass(1900ms);
    CHECK(seen->ends == 0);
    pass(200ms);
    REQUIRE(seen->ok());
    CHECK(seen->text == "...");
    CHECK(seen->finished->served[0].modules.empty());
    hold_loads(false);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: after the time-out a module that comes before the answer's end still counts",
                 "[actors][revise]") {
    start();
    hold_loads(true);
    hold_steps(true);
    GenerationRequest wish = revised(30);
    wish.timeout_ms = 100;
    const Seen seen = ask(wish);
    step();
    pass(200ms);
    hold_loads(false);
    run();
    for (int i = 0; i < 20 && !seen->revised; ++i) step();
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == std::string(30, 'a'));
    CHECK_FALSE(seen->switched);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a module without room leaves the base's answer", "[actors][revise]") {
    start();
    engine->refuses_switch = true;
    hold_loads(true);
    const bool ended = GENERATE(true, false);
    hold_steps(!ended);
    const Seen seen = ask(revised(5));
    if (!ended) step();
    hold_loads(false);
    hold_steps(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == ".....");
    CHECK_FALSE(seen->revised);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a cancel ends the request in every phase", "[actors][revise][C4]") {
    start();
    hold_loads(true);
    hold_steps(true);
    const std::string phase = GENERATE("preparing", "first pass", "waiting", "second pass");
    hold_prompts(phase == "preparing");
    const Seen seen = ask(revised(3));
    if (phase != "preparing") step();
    if (phase == "waiting" || phase == "second pass") {
        hold_steps(false);
        run();
        CHECK(seen->text == "...");
        CHECK(seen->ends == 0);
    }
    if (phase == "second pass") {
        engine->before_step = [&] { hold_steps(engine->switches > 0); };
        hold_loads(false);
        run();
        CHECK(seen->revised);
        CHECK(seen->ends == 0);
    }
    gateway->cancel(last_id());
    hold_steps(false);
    engine->before_step = nullptr;
    run();
    CHECK(seen->ended());
    CHECK(cache().leases.empty());
    hold_prompts(false);
    hold_loads(false);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a drain waits for it, a stop does not", "[actors][revise]") {
    start();
    hold_loads(true);
    const Seen seen = ask(revised());
    bool drained = false;
    caf::anon_send(peers->router, drain_atom_v, once<bool>([&](Result<bool>) { drained = true; }));
    run();
    CHECK_FALSE(drained);
    SECTION("drain") {
        hold_loads(false);
        run();
        CHECK(seen->text == "aaa");
    }
    SECTION("stop") {
        caf::anon_send(peers->router, quit_atom_v);
        run();
        CHECK(seen->text == "...");
    }
    CHECK(drained);
    CHECK(seen->ended());
    hold_loads(false);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a module that is there before the prompt makes the only pass",
                 "[actors][revise]") {
    start();
    hold_prompts(true);
    const Seen seen = ask(revised());
    hold_prompts(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == "aaa");
    CHECK_FALSE(seen->revised);
    CHECK(seen->finished->usage.completion_tokens == 3);
    CHECK(ask(revised())->admitted->cold == ColdWord::warm);
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "revise: a template found only by the load leaves the base's answer",
                 "[actors][revise]") {
    disk["root/a"].chat_template = "own";
    disk["root/a"].inspected = false;
    start();
    hold_loads(true);
    const Seen seen = ask(revised());
    hold_loads(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->text == "...");
    check_idle();
}

TEST_CASE_METHOD(ReviseFixture, "request, manifest and setting each decide, for streams and for answers at once",
                 "[actors][revise]") {
    using Policy = std::optional<ColdPolicy>;
    struct Row {
        Policy request, manifest;
        ColdPolicy setting;
        bool streamed;
        ColdWord word;
        std::string text;
    };
    const Policy none;
    const auto wait = ColdPolicy::wait, fallback = ColdPolicy::fallback, upgrade = ColdPolicy::upgrade,
               revise = ColdPolicy::revise;
    const std::vector<Row> rows{
        // by the setting alone
        {none, none, wait, false, ColdWord::wait, "aaa"},
        {none, none, fallback, false, ColdWord::fallback, "..."},
        {none, none, upgrade, false, ColdWord::upgrade, "..."},
        {none, none, revise, false, ColdWord::revise, "aaa"},
        {none, none, wait, true, ColdWord::wait, "aaa"},
        {none, none, fallback, true, ColdWord::fallback, "..."},
        {none, none, upgrade, true, ColdWord::upgrade, "..."},
        {none, none, revise, true, ColdWord::upgrade, "..."},
        // the manifest comes before the setting
        {none, wait, fallback, false, ColdWord::wait, "aaa"},
        {none, fallback, wait, false, ColdWord::fallback, "..."},
        {none, upgrade, revise, false, ColdWord::upgrade, "..."},
        {none, revise, wait, false, ColdWord::revise, "aaa"},
        {none, revise, wait, true, ColdWord::upgrade, "..."},
        {none, wait, revise, true, ColdWord::wait, "aaa"},
        // the request before both
        {wait, fallback, upgrade, false, ColdWord::wait, "aaa"},
        {fallback, revise, wait, false, ColdWord::fallback, "..."},
        {upgrade, wait, revise, false, ColdWord::upgrade, "..."},
        {revise, fallback, wait, false, ColdWord::revise, "aaa"},
        {revise, upgrade, fallback, true, ColdWord::revise, "aaa"},
        {revise, revise, revise, true, ColdWord::revise, "aaa"},
        {upgrade, revise, revise, true, ColdWord::upgrade, "..."},
    };
    const Row row = rows[static_cast<std::size_t>(GENERATE(range(0, 21)))];
    disk["root/a"].cold = row.manifest;
    settings.cold.policy = row.setting;
    start();
    hold_loads(true);
    GenerationRequest wish = request("a", 3);
    wish.cold = row.request;
    wish.streamed = row.streamed;
    const Seen seen = ask(wish);
    hold_loads(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->admitted->cold == row.word);
    CHECK(seen->text == row.text);
    CHECK(seen->revised.has_value() == (row.word == ColdWord::revise));
    CHECK(sum(*seen->finished) == seen->finished->usage.completion_tokens);
    check_idle();
}
