// Preemption, seen from outside: with few blocks the answers are the same, only later.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

std::vector<std::shared_ptr<RecordingSink>> crowd(EngineHouse& house, int requests, int n = 1) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < requests; ++i) {
        SamplingParams params = EngineHouse::greedy(40);
        params.temperature = 1;
        params.seed = static_cast<std::uint64_t>(i);
        params.presence_penalty = 0.5;
        params.n = n;
        sinks.push_back(house.add(i, std::string(static_cast<std::size_t>(5 + 4 * i), 'a'), params));
    }
    return sinks;
}

}  // namespace

TEST_CASE("preempted requests give the tokens they would have given, each once", "[engine]") {
    EngineHouse roomy({.blocks = 256});
    EngineHouse tight({.blocks = 6});
    roomy.knobs->peak = tight.knobs->peak = 1;
    const auto expected = crowd(roomy, 6);
    const auto got = crowd(tight, 6);
    REQUIRE(roomy.run());
    REQUIRE(tight.run());
    CHECK(roomy.preempted == 0);
    CHECK(tight.preempted > 0);
    for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i]->ids() == expected[i]->ids());
        CHECK(got[i]->text() == expected[i]->text());
        CHECK(got[i]->finished()->served[0].tokens == 40);
        CHECK(got[i]->all<Admitted>().size() == 1);
    }
    CHECK(tight.all_free());
}

TEST_CASE("forked choices are preempted one by one and end the same", "[engine]") {
    EngineHouse roomy({.blocks = 256});
    EngineHouse tight({.blocks = 7, .step_tokens = 5});
    roomy.knobs->peak = tight.knobs->peak = 1;
    const auto expected = crowd(roomy, 3, 3);
    const auto got = crowd(tight, 3, 3);
    REQUIRE(roomy.run());
    REQUIRE(tight.run());
    CHECK(tight.preempted > 0);
    for (std::size_t i = 0; i < got.size(); ++i) {
        for (int choice = 0; choice < 3; ++choice) CHECK(got[i]->ids(choice) == expected[i]->ids(choice));
    }
    CHECK(tight.all_free());
}

TEST_CASE("a prompt preempted while it is scored is scored once", "[engine]") {
    EngineHouse house({.blocks = 4, .step_tokens = 8});
    SamplingParams params = EngineHouse::greedy(30);
    const auto older = house.add(1, std::string(14, 'a'), params);
    for (int i = 0; i < 4; ++i) house.step();
    params.prompt_logprobs = 1;
    params.max_tokens = 3;
    const auto scored = house.add(2, std::string(30, 'a'), params);
    REQUIRE(house.run());
    CHECK(older->tokens().size() == 30);
    CHECK(scored->all<PromptEvent>().size() == 1);
    CHECK(scored->one<PromptEvent>()->scores.size() == 30);
    CHECK(scored->text() == "bcd");
    CHECK(house.all_free());
}

TEST_CASE("stats count requests with blocks as running", "[engine]") {
    EngineHouse house({.blocks = 8, .max_sequences = 2});
    for (int id = 0; id < 3; ++id) house.add(id, "abc", EngineHouse::greedy(9));
    CHECK(house.engine->stats().waiting == 3);
    house.step();
    const EngineStats stats = house.engine->stats();
    CHECK(stats.running == 2);
    CHECK(stats.waiting == 1);
    CHECK(stats.free_blocks == 6);
    CHECK(stats.total_blocks == 8);
    CHECK(stats.slot_capacity_bytes > 0);
}
