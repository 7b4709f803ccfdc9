// How requests run and end, over a model one can compute in one's head: after each token comes the next one.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

}  // namespace

TEST_CASE("a request is admitted, runs to max_tokens and is reported", "[engine]") {
    EngineHouse house;
    const auto sink = house.add(1, "a", greedy(5));
    REQUIRE(sink->events.size() == 1);
    CHECK(sink->one<Admitted>()->prompt_tokens == 1);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcdef");
    CHECK(sink->finish()->reason == FinishReason::length);
    CHECK(sink->finished()->usage.prompt_tokens == 1);
    CHECK(sink->finished()->usage.completion_tokens == 5);
    CHECK(sink->ended_once());
    REQUIRE(house.ended.size() == 1);
    CHECK(house.ended[0].outcome == "length");
    CHECK(house.ended[0].usage.completion_tokens == 5);
    CHECK(house.all_free());
}

TEST_CASE("the first event says what is cold and how the request was routed", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "abc", greedy(1));
    job->cold = ColdWord::upgrade;
    job->route = {"keyword", {"legal"}};
    const auto sink = house.add(std::move(job));
    const auto admitted = std::get<Admitted>(sink->events.front());
    CHECK(admitted.cold == ColdWord::upgrade);
    CHECK(admitted.route.rule == "keyword");
    CHECK(admitted.prompt_tokens == 3);
}

TEST_CASE("requests join and leave at every step", "[engine]") {
    EngineHouse house;
    const auto first = house.add(1, "a", greedy(3));
    CHECK(house.step().rows == 1);
    const auto second = house.add(2, "klm", greedy(4));
    CHECK(house.step().rows == 4);
    CHECK(house.step().rows == 2);
    CHECK(first->ended_once());
    CHECK(house.step().rows == 1);
    REQUIRE(house.run());
    CHECK(first->text() == "bcd");
    CHECK(second->text() == "nopq");
}

TEST_CASE("a step reports its rows, tokens and times", "[engine]") {
    EngineHouse house({.step_tokens = 4});
    house.add(1, "abcdef", greedy(3));
    StepReport report = house.step();
    CHECK(report.rows == 4);
    CHECK(report.prompt_rows == 4);
    CHECK(report.generated == 0);
    CHECK(report.work_left);
    report = house.step();
    CHECK(report.rows == 2);
    CHECK(report.generated == 1);
    CHECK(report.inter_token_seconds.empty());
    report = house.step();
    CHECK(report.prompt_rows == 0);
    REQUIRE(report.inter_token_seconds.size() == 1);
    CHECK(report.inter_token_seconds[0] == Approx(0.001));
    report = house.step();
    CHECK(report.ended.size() == 1);
    CHECK_FALSE(report.work_left);
    CHECK(report.fault.empty());
}

TEST_CASE("queue and first-token times are counted from when the request was received", "[engine]") {
    EngineHouse house({.max_sequences = 1});
    house.add(1, "a", greedy(4));
    const auto waiting = house.add(2, "a", greedy(2));
    REQUIRE(house.run());
    // Four steps of a millisecond each were the first one's.
    CHECK(waiting->finished()->queue_ms == Approx(4.0));
    CHECK(waiting->finished()->ttft_ms == Approx(4.0));
    CHECK(house.ended[1].e2e_ms == Approx(5.0));
}

TEST_CASE("an end token ends the choice, counts as a token and shows no text", "[engine]") {
    EngineHouse house({.end_tokens = {'d'}});
    const auto sink = house.add(1, "a", greedy(10));
    REQUIRE(house.run());
    CHECK(sink->ids() == std::vector<TokenId>{'b', 'c', 'd'});
    CHECK(sink->text() == "bc");
    CHECK(sink->finish()->reason == FinishReason::stop);
    CHECK(std::holds_alternative<std::monostate>(sink->finish()->stop_reason));
    CHECK(sink->finished()->usage.completion_tokens == 3);
    CHECK(house.ended[0].outcome == "stop");
}

TEST_CASE("ignore_eos runs past the end token", "[engine]") {
    EngineHouse house({.end_tokens = {'d'}});
    SamplingParams params = greedy(5);
    params.ignore_eos = true;
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcdef");
}

TEST_CASE("a stop id ends the choice and is its reason", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(10);
    params.stop_token_ids = {'e'};
    const auto sink = house.add(1, "a", params);
    params.include_stop_str_in_output = true;
    const auto with_stop = house.add(2, "a", params);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
    CHECK(std::get<TokenId>(sink->finish()->stop_reason) == 'e');
    CHECK(with_stop->text() == "bcde");
}

TEST_CASE("a stop string ends the choice with nothing of it seen", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(10);
    params.stop = {"zz", "ef"};
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
    CHECK(sink->finish()->reason == FinishReason::stop);
    CHECK(std::get<std::string>(sink->finish()->stop_reason) == "ef");
    CHECK(sink->finished()->usage.completion_tokens == 5);
    // "e" was held back when it came.
    CHECK(sink->tokens()[3].text.empty());
}

TEST_CASE("text held for a stop string comes with the end when max_tokens is reached", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(4);
    params.stop = {"defgh"};
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    CHECK(sink->finish()->text == "de");
    CHECK(sink->text() == "bcde");
    CHECK(sink->finish()->reason == FinishReason::length);
}

TEST_CASE("a stop string that the last allowed token completes is a stop", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(3);
    params.stop = {"cd"};
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    CHECK(sink->text() == "b");
    CHECK(sink->finish()->reason == FinishReason::stop);
}

TEST_CASE("min_tokens keeps end and stop ids away until then", "[engine]") {
    EngineHouse house({.end_tokens = {'c'}});
    SamplingParams params = greedy(6);
    params.min_tokens = 3;
    params.stop_token_ids = {'d'};
    const auto sink = house.add(1, "b", params);
    REQUIRE(house.run());
    // 'c' and 'd' are impossible, so the best is the lowest of the rest.
    CHECK(sink->ids()[0] == 0);
    CHECK(sink->tokens().size() == 6);
}

TEST_CASE("end tokens that the model does not have are left out", "[engine]") {
    EngineHouse house({.end_tokens = {-1, 320, 1 << 30}});
    SamplingParams params = greedy(3);
    params.min_tokens = 2;
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
}

TEST_CASE("a character cut by max_tokens ends in one replacement mark", "[engine][C1]") {
    EngineHouse house;
    auto job = house.job(1, "", greedy(1));
    job->prompt = {0xE5};
    const auto sink = house.add(std::move(job));
    REQUIRE(house.run());
    CHECK(sink->tokens()[0].text.empty());
    CHECK(sink->text() == "\uFFFD");
}

TEST_CASE("tokens that the tokenizer calls special are marked", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "", greedy(2));
    job->prompt = {299};
    const auto sink = house.add(std::move(job));
    REQUIRE(house.run());
    CHECK(sink->tokens()[0].special);
    CHECK_FALSE(sink->tokens()[1].special);
    CHECK(sink->text().empty());
}

TEST_CASE("without a tokenizer ids come and texts stay empty", "[engine]") {
    EngineHouse house({.end_tokens = {'e'}, .with_tokenizer = false});
    const auto sink = house.add(1, "a", greedy(9));
    REQUIRE(house.run());
    CHECK(sink->ids() == std::vector<TokenId>{'b', 'c', 'd', 'e'});
    CHECK(sink->text().empty());
    CHECK(sink->tokens()[3].special);
}

TEST_CASE("higher priority goes first", "[engine]") {
    EngineHouse house({.max_sequences = 1});
    house.add(1, "a", greedy(1));
    auto urgent = house.job(2, "a", greedy(1));
    urgent->priority = 3;
    house.add(std::move(urgent));
    REQUIRE(house.run());
    CHECK(house.ended[0].id == RequestId{2});
}

TEST_CASE("a cancelled request ends at once and its blocks are free", "[engine]") {
    EngineHouse house;
    const auto sink = house.add(1, "a", greedy(100));
    const auto other = house.add(2, "k", greedy(5));
    for (int i = 0; i < 3; ++i) house.step();
    house.engine->cancel(RequestId{1});
    CHECK(sink->ended_once());
    CHECK(sink->finish()->reason == FinishReason::cancelled);
    CHECK(sink->finished()->usage.completion_tokens == 3);
    CHECK(sink->finished()->served[0].tokens == 3);
    CHECK(house.engine->stats().running == 1);
    CHECK(house.engine->stats().free_blocks == house.engine->stats().total_blocks - 1);
    REQUIRE(house.run());
    CHECK(other->text() == "lmnop");
    CHECK(house.ended[0].outcome == "cancelled");
    CHECK(house.all_free());
}

TEST_CASE("a request is cancelled in every state", "[engine][C4]") {
    EngineHouse house({.max_sequences = 1, .step_tokens = 2});
    SamplingParams several = greedy(50);
    several.n = 3;
    const auto reading = house.add(1, "abcdefgh", several);
    const auto waiting = house.add(2, "abc", several);
    house.step();
    house.engine->cancel(RequestId{2});
    CHECK(waiting->all<ChoiceFinished>().size() == 3);
    CHECK(waiting->ended_once());
    house.engine->cancel(RequestId{1});
    CHECK(reading->all<ChoiceFinished>().size() == 3);
    CHECK(reading->ended_once());
    CHECK(house.engine->has_work());  // until the step that reports them
    REQUIRE(house.run());
    CHECK(house.ended.size() == 2);
    CHECK(house.all_free());

    const auto forked = house.add(3, "ab", several);
    for (int i = 0; i < 3; ++i) house.step();
    house.engine->cancel(RequestId{3});
    CHECK(forked->all<ChoiceFinished>().size() == 3);
    CHECK(house.all_free());
    house.engine->cancel(RequestId{77});  // unknown: nothing happens
}

TEST_CASE("cancelling sends the text that was held back", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(50);
    params.stop = {"cdefghij"};
    const auto sink = house.add(1, "a", params);
    for (int i = 0; i < 3; ++i) house.step();
    house.engine->cancel(RequestId{1});
    CHECK(sink->text() == "bcd");
}

TEST_CASE("a request past its deadline fails with a timeout", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "a", greedy(100));
    job->deadline = house.time + std::chrono::milliseconds(3);
    const auto sink = house.add(std::move(job));
    const auto other = house.add(2, "a", greedy(8));
    REQUIRE(house.run());
    REQUIRE(sink->failure());
    CHECK(sink->failure()->code == Errc::timeout);
    CHECK(sink->tokens().size() == 3);
    CHECK(sink->ended_once());
    CHECK(other->tokens().size() == 8);
    CHECK(house.all_free());
}

TEST_CASE("what can never run is refused with the numbers", "[engine]") {
    EngineHouse house({.blocks = 4});  // 64 tokens
    SECTION("too long for the pool") {
        const auto sink = house.add(1, std::string(60, 'a'), greedy(5));
        REQUIRE(sink->failure());
        CHECK(sink->failure()->code == Errc::context_exceeded);
        CHECK(sink->failure()->message.find("64") != std::string::npos);
        CHECK(sink->failure()->message.find("60") != std::string::npos);
        CHECK(sink->failure()->param == "max_tokens");
        CHECK(house.engine->shape().max_context == 64);
    }
    SECTION("a prompt as long as the context") {
        const auto sink = house.add(1, std::string(64, 'a'), greedy(1));
        CHECK(sink->failure()->param == "prompt");
    }
    SECTION("max_tokens near the largest integer") {
        const auto sink = house.add(1, "a", greedy(std::numeric_limits<int>::max()));
        CHECK(sink->failure()->code == Errc::context_exceeded);
    }
    SECTION("an empty prompt") { CHECK(house.add(1, "", greedy(1))->failure()->code == Errc::invalid_argument); }
    SECTION("a token id past the vocabulary, named by its place") {
        auto job = house.job(1, "ab", greedy(1));
        job->prompt.push_back(320);
        const auto sink = house.add(std::move(job));
        CHECK(sink->failure()->code == Errc::invalid_argument);
        CHECK(sink->failure()->message.find("prompt[2]") != std::string::npos);
        CHECK(sink->failure()->message.find("320") != std::string::npos);
    }
    SECTION("a negative token id") {
        auto job = house.job(1, "ab", greedy(1));
        job->prompt[0] = -1;
        CHECK(house.add(std::move(job))->failure()->message.find("prompt[0]") != std::string::npos);
    }
    SECTION("parameters out of range") {
        SamplingParams params = greedy(1);
        params.logit_bias = {{320, 1.0F}};
        CHECK(house.add(1, "a", params)->failure()->param == "logit_bias");
    }
    REQUIRE(house.run());
    CHECK(house.ended.size() == 1);
    CHECK(house.ended[0].outcome == "error");
    CHECK(house.all_free());
}

TEST_CASE("a request that fills the context exactly runs", "[engine]") {
    EngineHouse house({.blocks = 4});
    const auto sink = house.add(1, std::string(60, 'a'), greedy(4));
    REQUIRE(house.run());
    CHECK(sink->finished());
}

TEST_CASE("an id in use is refused and its owner goes on", "[engine]") {
    EngineHouse house;
    const auto first = house.add(1, "a", greedy(3));
    const auto second = house.add(1, "a", greedy(3));
    CHECK(second->failure());
    REQUIRE(house.run());
    CHECK(first->text() == "bcd");
}
