// Cold policy "upgrade": the base begins, a module goes on. FakeModel adds a module's weight to each step.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

}  // namespace

TEST_CASE("modules act on their request's rows only, by weight", "[engine]") {
    EngineHouse house;
    const JobModule two = house.module("two", 1.0);
    const JobModule five = house.module("five", 4.0);
    const auto add = [&](int id, std::vector<JobModule> modules) {
        auto job = house.job(id, "a", greedy(3));
        job->modules = std::move(modules);
        return house.add(std::move(job));
    };
    const auto base = add(1, {});
    const auto one_module = add(2, {two});
    const auto both = add(3, {two, five});
    REQUIRE(house.run());
    CHECK(base->text() == "bcd");
    CHECK(one_module->text() == "ceg");
    CHECK(both->text() == "gms");
    REQUIRE(both->finished()->served.size() == 1);
    CHECK(both->finished()->served[0].modules.size() == 2);
    CHECK(base->finished()->served[0].modules.empty());
}

TEST_CASE("a module of weight 0 is off and not in the record", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "a", greedy(2));
    job->modules = {house.module("off", 0.0)};
    const auto sink = house.add(std::move(job));
    REQUIRE(house.run());
    CHECK(sink->text() == "bc");
    CHECK(sink->finished()->served[0].modules.empty());
}

TEST_CASE("a switch lets the module go on from the base's tokens, and says so", "[engine]") {
    EngineHouse house;
    const auto sink = house.add(1, "a", greedy(6));
    for (int i = 0; i < 2; ++i) house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    const auto switched = sink->one<Switched>();
    REQUIRE(switched);
    CHECK(switched->base_tokens == 2);
    REQUIRE(switched->modules.size() == 1);
    CHECK(switched->modules[0].id.name == "legal");
    CHECK(house.step().prompt_rows == 3);  // prompt and answer so far, read again
    REQUIRE(house.run());
    CHECK(sink->text() == "bcegik");
    const auto served = sink->finished()->served;
    REQUIRE(served.size() == 2);
    CHECK(served[0].modules.empty());
    CHECK(served[0].tokens == 2);
    CHECK(served[1].modules[0].id.name == "legal");
    CHECK(served[1].tokens == 4);
}

TEST_CASE("a switch before the first token leaves the base out of the record", "[engine]") {
    EngineHouse house({.step_tokens = 2});
    const auto sink = house.add(1, "aaaaa", greedy(2));
    house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    CHECK(sink->one<Switched>()->base_tokens == 0);
    REQUIRE(house.run());
    CHECK(sink->text() == "ce");
    REQUIRE(sink->finished()->served.size() == 1);
    CHECK(sink->finished()->served[0].modules.size() == 1);
}

TEST_CASE("all choices switch at one step boundary", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(4);
    params.n = 2;
    const auto sink = house.add(1, "a", params);
    house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    CHECK(sink->one<Switched>()->base_tokens == 2);
    REQUIRE(house.run());
    for (int choice = 0; choice < 2; ++choice) CHECK(sink->text(choice) == "bdfh");
    int tokens = 0;
    const Finished finished = *sink->finished();
    for (const ServedEntry& entry : finished.served) tokens += entry.tokens;
    CHECK(tokens == 8);
    CHECK(finished.served.size() == 4);
}

TEST_CASE("a choice that has ended stays ended through a switch", "[engine]") {
    EngineHouse house;
    house.knobs->peak = 1;
    SamplingParams params = greedy(60);
    params.temperature = 1;
    params.seed = 3;
    params.n = 3;
    params.stop_token_ids = {'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm'};
    const auto sink = house.add(1, "a", params);
    while (sink->all<ChoiceFinished>().empty()) house.step();
    REQUIRE(sink->all<ChoiceFinished>().size() < 3);
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    REQUIRE(house.run());
    CHECK(sink->all<ChoiceFinished>().size() == 3);
    CHECK(sink->ended_once());
}

TEST_CASE("a switch of a request that is gone, or to a module that is, is refused", "[engine]") {
    EngineHouse house;
    const JobModule legal = house.module("legal");
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {legal}));
    const auto sink = house.add(1, "a", greedy(3));
    house.step();
    house.engine->remove(legal.slot);
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {legal}));
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {}));
}

TEST_CASE("a prompt is scored to its end by the weights that began it", "[engine]") {
    EngineHouse house({.step_tokens = 2});
    SamplingParams params = greedy(2);
    params.prompt_logprobs = 0;
    const auto sink = house.add(1, "abcdef", params);
    house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    CHECK_FALSE(sink->one<Switched>());
    REQUIRE(house.run());
    const auto prompt = sink->one<PromptEvent>();
    REQUIRE(prompt);
    for (std::size_t i = 1; i < 6; ++i) CHECK(prompt->scores[i]->chosen.rank == 1);
    CHECK(sink->one<Switched>());
    CHECK(sink->finished()->served.back().modules.size() == 1);
}

TEST_CASE("random numbers go on through a switch", "[engine]") {
    // To weights that change nothing: the same tokens as without.
    const auto answer = [](bool switching) {
        EngineHouse house;
        house.knobs->peak = 1;
        SamplingParams params = greedy(20);
        params.temperature = 1;
        params.seed = 6;
        const auto sink = house.add(1, "abc", params);
        for (int i = 0; i < 7; ++i) house.step();
        if (switching) CHECK(house.engine->switch_modules(RequestId{1}, {house.module("none", 0.0)}));
        REQUIRE(house.run());
        return sink->ids();
    };
    CHECK(answer(true) == answer(false));
}

TEST_CASE("a stop string may begin under the base and end under the module", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(6);
    params.stop = {"ce"};
    const auto sink = house.add(1, "a", params);
    for (int i = 0; i < 2; ++i) house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    REQUIRE(house.run());
    CHECK(sink->text() == "b");
    const auto finished = sink->all<ChoiceFinished>();
    REQUIRE(finished.size() == 1);
    CHECK(finished[0].reason == FinishReason::stop);
    const auto served = sink->finished()->served;
    REQUIRE(served.size() == 2);
    CHECK(served[0].tokens == 2);
    CHECK(served[1].tokens == 1);
}
