// scheduler.slo_itl_ms: prompts give way to answers that run, and the answers are the same.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attune;
using namespace std::chrono_literals;

namespace {

/// A tenth of a millisecond for each row. One answer runs; two long prompts come.
struct Run {
    explicit Run(double slo_itl_ms) : house({.blocks = 128, .step_tokens = 512, .slo_itl_ms = slo_itl_ms}) {
        house.row_time = 100us;
        const auto running = house.add(1, "a", EngineHouse::greedy(150));
        for (int i = 0; i < 10; ++i) house.step();
        const auto second = house.add(2, std::string(200, 'a'), EngineHouse::greedy(5));
        const auto third = house.add(3, std::string(300, 'b'), EngineHouse::greedy(5));
        for (int i = 0; i < 400 && house.engine->has_work(); ++i) {
            const StepReport report = house.step();
            if (report.rows > report.prompt_rows) longest_s = std::max(longest_s, report.seconds);
            most_prompt_rows = std::max(most_prompt_rows, report.prompt_rows);
            held += report.prompts_held ? 1 : 0;
        }
        ids = {running->ids(), second->ids(), third->ids()};
    }

    EngineHouse house;
    double longest_s = 0;  ///< of the steps in which somebody decoded
    int most_prompt_rows = 0;
    int held = 0;
    std::vector<std::vector<TokenId>> ids;
};

}  // namespace

TEST_CASE("steps that decode stay under the goal, by shorter pieces of prompts", "[engine][slo]") {
    const Run free(0);
    CHECK(free.longest_s > 0.040);
    CHECK(free.held == 0);
    const Run held(10);
    CHECK(held.longest_s <= 0.010);
    CHECK(held.most_prompt_rows > 60);  // and the time there is gets used
    CHECK(held.held > 3);
    CHECK(held.ids == free.ids);
}

TEST_CASE("a goal that decoding alone misses leaves prompts their least rows", "[engine][slo]") {
    const Run held(0.05);
    CHECK(held.most_prompt_rows == 16);
    CHECK(held.ids == Run(0).ids);
}

TEST_CASE("a prompt that nobody decodes beside is read at full length", "[engine][slo]") {
    EngineHouse house({.blocks = 128, .step_tokens = 512, .slo_itl_ms = 1});
    house.row_time = 100us;
    house.add(1, std::string(300, 'a'), EngineHouse::greedy(1));
    CHECK(house.step().prompt_rows == 300);
}

TEST_CASE("the engine tells how many rows of prompts wait, by priority, and how fast they are read", "[engine][slo]") {
    EngineHouse house({.blocks = 128, .max_sequences = 1, .step_tokens = 50});
    house.row_time = 100us;
    CHECK(house.engine->stats().prompts.empty());
    CHECK(house.engine->stats().prompt_rows_per_second == 0);
    auto urgent = house.job(1, std::string(120, 'a'), EngineHouse::greedy(3));
    urgent->priority = 4;
    house.add(std::move(urgent));
    house.add(2, std::string(30, 'a'), EngineHouse::greedy(3));
    house.add(3, std::string(10, 'a'), EngineHouse::greedy(3));
    house.step();
    const EngineStats stats = house.engine->stats();
    REQUIRE(stats.prompts.size() == 2);
    for (const PromptRows& one : stats.prompts) CHECK(one.rows == (one.priority == 4 ? 70 : 40));
    CHECK(stats.prompt_rows_per_second == Approx(10000));
    REQUIRE(house.run());
    CHECK(house.engine->stats().prompts.empty());
}
