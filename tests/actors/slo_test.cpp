// Requests that are shed since their first token would come too late.

#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// A goal of half a second, prompts of 3 tokens, and an engine that reads a hundred of them in a second.
class SloFixture : public HouseFixture {
public:
    SloFixture() { settings.scheduler.slo_ttft_ms = 500; }
    void measure(std::vector<PromptRows> prompts, double rate = 100) {
        engine->prompts = std::move(prompts);
        engine->prompt_rows_per_second = rate;
        ask("base", 1);  // a step, which tells it
    }
    GenerationRequest with_priority(int priority) {
        GenerationRequest wish = request("base", 1);
        wish.priority = priority;
        return wish;
    }
};

}  // namespace

TEST_CASE_METHOD(SloFixture, "a request behind more prompts than can be read in time is shed with 429",
                 "[actors][router][slo]") {
    start();
    measure({{0, 60}});
    const Seen seen = ask("base", 1);
    CHECK(seen->code() == Errc::overloaded);
    CHECK(seen->error->message.find("60 prompt tokens are ahead") != std::string::npos);
    CHECK(seen->error->message.find("600 ms") != std::string::npos);
    CHECK(seen->error->message.find("scheduler.slo_ttft_ms is 500") != std::string::npos);
    CHECK(metrics().find("attune_requests_rejected_total{engine=\"0\",model_name=\"base\",reason=\"slo_ttft\"} 1") !=
          std::string::npos);
}

TEST_CASE_METHOD(SloFixture, "what is ahead goes by priority", "[actors][router][slo]") {
    start();
    measure({{0, 60}, {5, 10}});
    CHECK(ask(with_priority(1))->ok());
    CHECK(ask(with_priority(0))->code() == Errc::overloaded);
    CHECK(ask(with_priority(-1))->code() == Errc::overloaded);
}

TEST_CASE_METHOD(SloFixture, "nobody is shed by an idle engine, without a measured rate, or without a goal",
                 "[actors][router][slo]") {
    SECTION("idle") {
        start();
        measure({}, 1);  // even its own prompt takes three seconds
        CHECK(ask("base", 1)->ok());
    }
    SECTION("not measured") {
        start();
        measure({{0, 1000}}, 0);
        CHECK(ask("base", 1)->ok());
    }
    SECTION("no goal") {
        settings.scheduler.slo_ttft_ms = 0;
        start();
        measure({{0, 100000}});
        CHECK(ask("base", 1)->ok());
    }
}

TEST_CASE_METHOD(SloFixture, "prompts on their way to the engine count, and the request's own",
                 "[actors][router][slo]") {
    start();
    measure({}, 16);  // 8 tokens in half a second
    hold_steps(true);
    const Seen first = ask("base", 1);
    const Seen second = ask("base", 1);
    const Seen third = ask("base", 1);  // 6 are ahead of its own 3
    CHECK(first->ends == 0);
    CHECK(second->ends == 0);
    CHECK(third->code() == Errc::overloaded);
    hold_steps(false);
    run();
    CHECK(first->ok());
    CHECK(second->ok());
    CHECK(ask("base", 1)->ok());  // nothing is ahead any more
    CHECK(core->prompt_load.ahead_of(0).rows == 0);
}

TEST_CASE_METHOD(SloFixture, "who is shed holds no module", "[actors][router][slo]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    hold_loads(true);
    const Seen seen = ask("a", 1);
    measure({{0, 60}});
    hold_loads(false);
    run();
    CHECK(seen->code() == Errc::overloaded);
    CHECK(cache().leases.empty());
}
