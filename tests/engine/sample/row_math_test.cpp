#include "engine/sample/row_math.hpp"

#include "engine/sample/philox.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace attune;

namespace {

std::vector<float> random_row(std::size_t size, std::uint64_t seed = 3) {
    std::vector<float> row(size);
    for (std::size_t i = 0; i < size; ++i)
        row[i] = static_cast<float>(token_uniform(seed, 0, static_cast<int>(i)) * 20 - 10);
    return row;
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("the row's maximum and its first place are found at any size", "[engine][sample]") {
    for (const std::size_t size : {1U, 31U, 32U, 33U, 63U, 64U, 65U, 1000U}) {
        const auto row = random_row(size);
        const auto best = std::max_element(row.begin(), row.end());
        CHECK(row_max(row).value == *best);
        CHECK(row_max(row).finite);
        CHECK(first_equal(row, *best) == static_cast<std::size_t>(best - row.begin()));
        CHECK(first_equal(row, 99.0F) == size);
    }
}

TEST_CASE("one odd value anywhere makes a row not finite", "[engine][sample]") {
    for (const float odd : {kNan, kInf, -kInf}) {
        for (const std::size_t place : {0U, 31U, 32U, 99U, 100U}) {
            auto row = random_row(101);
            row[place] = odd;
            CHECK_FALSE(row_max(row).finite);
        }
    }
}

TEST_CASE("exp is right to a few parts in ten million and 0 far below", "[engine][sample]") {
    double worst = 0;
    for (float x = 0; x > -87; x -= 0.0173F) {
        const double exact = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::fabs(static_cast<double>(exp_nonpositive(x)) - exact) / exact);
    }
    CHECK(worst < 3e-7);
    CHECK(exp_nonpositive(0.0F) == 1.0F);
    CHECK(exp_nonpositive(-88.1F) == 0.0F);
    CHECK(exp_nonpositive(-kInf) == 0.0F);
}

TEST_CASE("the sum over a large row keeps its digits", "[engine][sample]") {
    const auto row = random_row(150001);
    const float max = row_max(row).value;
    double exact = 0;
    for (const float x : row) exact += std::exp(static_cast<double>(x) - static_cast<double>(max));
    CHECK(std::fabs(exp_sum(row, max) / exact - 1) < 1e-6);

    std::vector<float> weights(row.size());
    std::vector<double> sums(runs_of(row));
    CHECK(std::fabs(exp_weights(row, max, 1.0F, 0.0F, weights, sums) / exact - 1) < 1e-6);
    double of_runs = 0;
    for (const double sum : sums) of_runs += sum;
    CHECK(std::fabs(of_runs / exact - 1) < 1e-6);
}

TEST_CASE("weights below the floor are 0 and count for nothing", "[engine][sample]") {
    const std::vector<float> row{2.0F, 1.0F, 0.0F, -1.0F};
    std::vector<float> weights(4);
    std::vector<double> sums(1);
    const double total = exp_weights(row, 2.0F, 1.0F, 0.2F, weights, sums);
    CHECK(weights[1] == Approx(std::exp(-1.0)));
    CHECK(weights[2] == 0.0F);
    CHECK(weights[3] == 0.0F);
    CHECK(total == Approx(1 + std::exp(-1.0)));
}

TEST_CASE("run maxima and counts agree with plain loops", "[engine][sample]") {
    for (const std::size_t size : {1U, 64U, 65U, 640U, 1001U}) {
        const auto row = random_row(size, 9);
        std::vector<float> maxima(runs_of(row));
        run_maxima(row, maxima);
        for (std::size_t run = 0; run < maxima.size(); ++run) {
            const std::size_t end = std::min(size, (run + 1) * kRunLength);
            CHECK(maxima[run] == *std::max_element(row.begin() + static_cast<std::ptrdiff_t>(run * kRunLength),
                                                   row.begin() + static_cast<std::ptrdiff_t>(end)));
        }
        CHECK(count_greater(row, 0.5F) == std::count_if(row.begin(), row.end(), [](float x) { return x > 0.5F; }));
    }
}
