#include "engine/schedule/step_cost.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// A machine whose steps take a millisecond, 0.1 ms per decode row and 0.2 ms per row of a prompt.
double seconds_of(int decode_rows, int prompt_rows) { return 0.001 + 0.0001 * decode_rows + 0.0002 * prompt_rows; }

/// Steps like those of a server: prompts come and go, answers run beside them.
StepCost trained() {
    StepCost cost;
    for (int i = 0; i < 60; ++i) {
        const int decode_rows = 4 + i % 7;
        const int prompt_rows = i % 3 == 0 ? 0 : 20 * (1 + i % 4);
        cost.stepped(decode_rows, prompt_rows, seconds_of(decode_rows, prompt_rows));
    }
    return cost;
}

}  // namespace

TEST_CASE("what a step takes is learnt from steps", "[engine][schedule][slo]") {
    const StepCost cost = trained();
    CHECK(cost.seconds(8, 0) == Approx(seconds_of(8, 0)).epsilon(0.02));
    CHECK(cost.seconds(8, 60) == Approx(seconds_of(8, 60)).epsilon(0.02));
}

TEST_CASE("as many rows of prompts are given as there is time for", "[engine][schedule][slo]") {
    const StepCost cost = trained();
    // 10 ms - 1 ms - 8 * 0.1 ms leave 8.2 ms for rows of 0.2 ms.
    CHECK(cost.prompt_rows_within(0.010, 8) == Approx(41).margin(1));
    CHECK(cost.prompt_rows_within(0.010, 40) == Approx(25).margin(2));
}

TEST_CASE("a prompt gets its least rows when decoding alone takes too long, and before anything is known",
          "[engine][schedule][slo]") {
    CHECK(trained().prompt_rows_within(0.001, 64) == StepCost::kLeastPromptRows);
    CHECK(StepCost{}.prompt_rows_within(10.0, 1) == StepCost::kLeastPromptRows);
}

TEST_CASE("nobody is sent further than twice what was seen", "[engine][schedule][slo]") {
    CHECK(trained().prompt_rows_within(100.0, 8) <= 160);
    CHECK(trained().prompt_rows_within(100.0, 8) > 80);
}

TEST_CASE("a machine that gets slower is believed within a few dozen steps, one slow step is not",
          "[engine][schedule][slo]") {
    StepCost cost = trained();
    const double before = cost.seconds(8, 40);
    cost.stepped(8, 40, 100 * before);
    CHECK(cost.seconds(8, 40) < 1.5 * before);
    for (int i = 0; i < 100; ++i) cost.stepped(8, 20 + i % 40, 2 * seconds_of(8, 20 + i % 40));
    CHECK(cost.seconds(8, 40) == Approx(2 * before).epsilon(0.1));
}

TEST_CASE("the goal is kept where steps never vary, so that their parts cannot be told apart",
          "[engine][schedule][slo]") {
    StepCost cost;
    int prompt_rows = StepCost::kLeastPromptRows;
    for (int i = 0; i < 200; ++i) {
        cost.stepped(8, prompt_rows, seconds_of(8, prompt_rows));
        prompt_rows = cost.prompt_rows_within(0.010, 8);
    }
    CHECK(seconds_of(8, prompt_rows) <= 0.0101);
    CHECK(prompt_rows >= 35);
}

TEST_CASE("the rate of prompts counts the time in which they wait", "[engine][schedule][slo]") {
    PromptRate rate;
    CHECK(rate.rows_per_second() == 0);
    rate.stepped(100, 0.1);
    CHECK(rate.rows_per_second() == Approx(1000));
    rate.stepped(0, 0.1);
    CHECK(rate.rows_per_second() == Approx(500).epsilon(0.02));
    for (int i = 0; i < 1000; ++i) rate.stepped(20, 0.1);
    CHECK(rate.rows_per_second() == Approx(200).epsilon(0.01));
}
