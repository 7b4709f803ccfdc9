// echo, prompt_logprobs and max_tokens 0.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

std::size_t place_of_prompt(const RecordingSink& sink) {
    for (std::size_t i = 0; i < sink.events.size(); ++i) {
        if (std::holds_alternative<PromptEvent>(sink.events[i])) return i;
    }
    return 999;
}

}  // namespace

TEST_CASE("echo sends the prompt back before the first token", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(2);
    params.echo = true;
    const auto sink = house.add(1, "héy", params);
    REQUIRE(house.run());
    const auto prompt = sink->one<PromptEvent>();
    REQUIRE(prompt);
    CHECK(prompt->text == "héy");
    CHECK(prompt->ids.size() == 4);
    CHECK(prompt->pieces == std::vector<std::string>{"h", "", "é", "y"});
    CHECK(prompt->scores.empty());
    CHECK(place_of_prompt(*sink) == 1);
    CHECK(sink->text() == "z{");
}

TEST_CASE("without echo or prompt_logprobs there is no prompt event", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(2);
    params.logprobs = 1;
    const auto sink = house.add(1, "ab", params);
    REQUIRE(house.run());
    CHECK_FALSE(sink->one<PromptEvent>());
}

TEST_CASE("prompt_logprobs scores every token but the first, in chunks of any size", "[engine]") {
    for (const int step_tokens : {1, 3, 7, 64}) {
        EngineHouse house({.step_tokens = step_tokens});
        SamplingParams params = greedy(2);
        params.prompt_logprobs = 2;
        const auto sink = house.add(1, "abcdxfgh", params);
        REQUIRE(house.run());
        const auto prompt = sink->one<PromptEvent>();
        REQUIRE(prompt);
        REQUIRE(prompt->scores.size() == 8);
        CHECK_FALSE(prompt->scores[0]);
        for (const std::size_t i : {1U, 2U, 3U, 6U, 7U}) {
            CHECK(prompt->scores[i]->chosen.id == prompt->ids[i]);
            CHECK(prompt->scores[i]->chosen.rank == 1);
            CHECK(prompt->scores[i]->top.size() == 2);
        }
        CHECK(prompt->scores[4]->chosen.rank == 'x' + 1);  // every lower id is as likely, and 'e' is likelier
        CHECK(prompt->scores[4]->chosen.bytes == "x");
        CHECK(prompt->scores[4]->chosen.logprob == Approx(-20).margin(0.01));
        CHECK(place_of_prompt(*sink) == 1);
        CHECK(sink->text() == "ij");
    }
}

TEST_CASE("a long prompt's logits are made a few rows at a time", "[engine]") {
    EngineHouse house({.step_tokens = 256});
    SamplingParams params = greedy(1);
    params.prompt_logprobs = 0;
    const auto sink = house.add(1, std::string(200, 'a'), params);
    REQUIRE(house.run());
    CHECK(sink->one<PromptEvent>()->scores.size() == 200);
    CHECK(house.knobs->most_logit_rows <= 64);
}

TEST_CASE("echo with logprobs scores the prompt with as many alternatives", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(1);
    params.echo = true;
    params.logprobs = 3;
    const auto sink = house.add(1, "abc", params);
    REQUIRE(house.run());
    CHECK(sink->one<PromptEvent>()->scores[2]->top.size() == 3);
}

TEST_CASE("max_tokens 0 with echo gives the prompt and no token", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(0);
    params.echo = true;
    params.n = 2;
    const auto plain = house.add(1, "abc", params);
    CHECK(plain->ended_once());
    params.logprobs = 1;
    const auto scored = house.add(2, "abc", params);
    REQUIRE(house.run());
    for (const auto& sink : {plain, scored}) {
        CHECK(sink->one<PromptEvent>()->text == "abc");
        CHECK(sink->all<TokenEvent>().empty());
        CHECK(sink->all<ChoiceFinished>().size() == 2);
        CHECK(sink->finish(1)->reason == FinishReason::length);
        CHECK(sink->finished()->usage.completion_tokens == 0);
        CHECK(sink->ended_once());
    }
    CHECK(scored->one<PromptEvent>()->scores.size() == 3);
    CHECK(house.all_free());
}

TEST_CASE("a prompt of one token has nothing to score", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(0);
    params.prompt_logprobs = 1;
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    REQUIRE(sink->one<PromptEvent>());
    REQUIRE(sink->one<PromptEvent>()->scores.size() == 1);
    CHECK_FALSE(sink->one<PromptEvent>()->scores[0]);
    CHECK(sink->ended_once());
}

TEST_CASE("a scored prompt with n choices is told once", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(2);
    params.prompt_logprobs = 0;
    params.n = 3;
    const auto sink = house.add(1, "abc", params);
    REQUIRE(house.run());
    CHECK(sink->all<PromptEvent>().size() == 1);
    CHECK(sink->text(2) == "de");
}
