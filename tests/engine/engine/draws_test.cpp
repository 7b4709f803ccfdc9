// Which tokens requests draw, over a model whose rows are known: choices, seeds, log-probabilities, threads.

#include "support/engine_house.hpp"
#include "support/worker_threads.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

}  // namespace

TEST_CASE("logprobs carry ranks and the tokens' bytes", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(2);
    params.logprobs = 2;
    const auto sink = house.add(1, "a", params);
    REQUIRE(house.run());
    const TokenScores scores = *sink->tokens()[0].scores;
    CHECK(scores.chosen.id == 'b');
    CHECK(scores.chosen.rank == 1);
    CHECK(scores.chosen.bytes == "b");
    CHECK(scores.chosen.logprob == Approx(0.0).margin(1e-4));
    REQUIRE(scores.top.size() == 2);
    CHECK(scores.top[0].id == 'b');
    CHECK(scores.top[1].id == 0);
}

TEST_CASE("each of n choices has its own tokens, end and record", "[engine]") {
    EngineHouse house;
    house.knobs->peak = 1;
    SamplingParams params = greedy(20);
    params.temperature = 1;
    params.seed = 4;
    params.n = 3;
    const auto sink = house.add(1, "hello", params);
    REQUIRE(house.run());
    CHECK(sink->ended_once());
    for (int choice = 0; choice < 3; ++choice) {
        CHECK(sink->tokens(choice).size() == 20);
        CHECK(sink->finish(choice));
    }
    CHECK(sink->ids(0) != sink->ids(1));
    CHECK(sink->ids(1) != sink->ids(2));
    CHECK(sink->finished()->usage.completion_tokens == 60);
    REQUIRE(sink->finished()->served.size() == 3);
    for (int choice = 0; choice < 3; ++choice) {
        CHECK(sink->finished()->served[static_cast<std::size_t>(choice)].choice == choice);
        CHECK(sink->finished()->served[static_cast<std::size_t>(choice)].tokens == 20);
    }
    CHECK(house.all_free());
}

TEST_CASE("n choices read their prompt once", "[engine]") {
    EngineHouse house;
    SamplingParams params = greedy(2);
    params.n = 4;
    house.add(1, "twelve bytes", params);
    REQUIRE(house.run());
    CHECK(house.knobs->rows == std::vector<int>{12, 4});
}

TEST_CASE("more choices than max_sequences all end, and a choice is the same among more or fewer", "[engine]") {
    SamplingParams params = greedy(12);
    params.temperature = 1;
    params.seed = 9;
    std::vector<std::vector<TokenId>> few;
    for (const int max_sequences : {8, 2}) {
        EngineHouse house({.max_sequences = max_sequences});
        house.knobs->peak = 1;
        params.n = max_sequences == 8 ? 3 : 5;
        const auto sink = house.add(1, "abc", params);
        REQUIRE(house.run());
        CHECK(sink->all<ChoiceFinished>().size() == static_cast<std::size_t>(params.n));
        CHECK(house.all_free());
        for (int choice = 0; choice < 3; ++choice) few.push_back(sink->ids(choice));
    }
    CHECK(few[0] == few[3]);
    CHECK(few[1] == few[4]);
    CHECK(few[2] == few[5]);
}

TEST_CASE("a seeded answer does not depend on its neighbours", "[engine]") {
    SamplingParams params = greedy(30);
    params.temperature = 1;
    params.seed = 123;
    const auto answer = [&](int neighbours) {
        EngineHouse house({.blocks = 256, .step_tokens = 16});
        house.knobs->peak = 1;
        for (int i = 0; i < neighbours; ++i) {
            SamplingParams other = params;
            other.seed = static_cast<std::uint64_t>(i);
            other.top_k = i;
            house.add(100 + i, std::string(static_cast<std::size_t>(3 * i + 1), 'x'), other);
        }
        const auto sink = house.add(1, "seeded", params);
        REQUIRE(house.run());
        return sink->ids();
    };
    const auto alone = answer(0);
    CHECK(alone.size() == 30);
    CHECK(answer(1) == alone);
    CHECK(answer(9) == alone);
}

TEST_CASE("requests without a seed draw differently", "[engine]") {
    EngineHouse house;
    house.knobs->peak = 0;
    SamplingParams params = greedy(20);
    params.temperature = 1;
    params.seed.reset();
    const auto first = house.add(1, "a", params);
    const auto second = house.add(2, "a", params);
    REQUIRE(house.run());
    CHECK(first->ids() != second->ids());
}

TEST_CASE("who draws a step's tokens, and how many draw at once, changes none of them", "[engine]") {
    // Every way to draw, side by side; some end while others go on.
    const auto answers = [](int threads) {
        const WorkerThreads set(threads);
        EngineHouse house({.blocks = 256, .max_sequences = 32, .step_tokens = 256});
        house.knobs->peak = 1;
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        for (int i = 0; i < 20; ++i) {
            SamplingParams params = greedy(6 + i % 7);
            params.seed = static_cast<std::uint64_t>(i);
            if (i % 5 != 0) params.temperature = 1;
            if (i % 3 == 1) params.top_p = 0.8;
            if (i % 4 == 2) params.top_k = 5;
            if (i % 4 == 3) params.logprobs = 2;
            if (i % 6 == 5) params.frequency_penalty = 0.5;
            if (i % 7 == 6) params.n = 2;
            sinks.push_back(house.add(i + 1, std::string(static_cast<std::size_t>(i + 1), 'x'), params));
        }
        REQUIRE(house.run());
        CHECK(house.all_free());
        std::vector<std::vector<TokenId>> drawn;
        for (const auto& sink : sinks) {
            CHECK(sink->ended_once());
            for (const int choice : {0, 1}) drawn.push_back(sink->ids(choice));
        }
        return drawn;
    };
    const auto alone = answers(1);
    CHECK(alone[2].size() == 7);
    CHECK(answers(2) == alone);
    CHECK(answers(5) == alone);
}
