#include "engine/sample/sampler.hpp"

#include "engine/sample/philox.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

using namespace attune;

namespace {

SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
}

std::vector<float> random_row(std::size_t size) {
    std::vector<float> row(size);
    for (std::size_t i = 0; i < size; ++i)
        row[i] = static_cast<float>(token_uniform(8, 1, static_cast<int>(i)) * 12 - 6);
    return row;
}

/// Allows the tokens it was given and remembers what it was told.
class AllowList final : public TokenConstraint {
public:
    AllowList(int vocab, std::set<TokenId> allowed) : words_((static_cast<std::size_t>(vocab) + 31) / 32, 0) {
        for (const TokenId id : allowed) words_[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
    }
    std::span<const std::uint32_t> mask() override { return words_; }
    void advance(TokenId) override {}
    void rollback(int) override {}
    std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<AllowList>(*this); }

private:
    std::vector<std::uint32_t> words_;
};

}  // namespace

TEST_CASE("temperature 0 takes the best token, the lower id among equals", "[engine][sample]") {
    Sampler sampler(5);
    const std::vector<float> row{1.0F, 3.0F, 2.0F, 3.0F, -1.0F};
    const SamplingParams params = greedy();
    CHECK(sampler.sample(row, {.params = params}).id == 1);
    CHECK_FALSE(sampler.sample(row, {.params = params}).scores);
}

TEST_CASE("greedy ignores top-k, top-p, min-p and the seed", "[engine][sample]") {
    Sampler sampler(300);
    const auto row = random_row(300);
    SamplingParams params = greedy();
    const TokenId best = sampler.sample(row, {.params = params}).id;
    params.top_k = 50;
    params.top_p = 0.2;
    params.min_p = 0.9;
    for (std::uint64_t seed = 0; seed < 5; ++seed)
        CHECK(sampler.sample(row, {.params = params, .seed = seed}).id == best);
}

TEST_CASE("equal seeds, choices and indices draw equal tokens", "[engine][sample]") {
    Sampler sampler(1000);
    Sampler other(1000);
    const auto row = random_row(1000);
    const SamplingParams params;
    std::set<TokenId> seen;
    for (int i = 0; i < 50; ++i) {
        const SampleContext context{.params = params, .seed = 77, .choice = i % 3, .token_index = i};
        const TokenId id = sampler.sample(row, context).id;
        CHECK(other.sample(row, context).id == id);
        seen.insert(id);
    }
    CHECK(seen.size() > 20);
}

TEST_CASE("what a sampler did before leaves no trace in the next token", "[engine][sample]") {
    const auto row = random_row(1000);
    const auto other_row = std::vector<float>(1000, 0.25F);
    SamplingParams plain;
    SamplingParams busy;
    busy.top_k = 30;
    busy.logit_bias = {{5, 50.0F}};
    busy.logprobs = 10;
    for (int i = 0; i < 20; ++i) {
        Sampler fresh(1000);
        Sampler used(1000);
        for (int j = 0; j < 3; ++j) (void)used.sample(other_row, {.params = busy, .seed = 1, .token_index = j});
        const SampleContext context{.params = plain, .seed = 3, .token_index = i};
        CHECK(used.sample(row, context).id == fresh.sample(row, context).id);
    }
}

TEST_CASE("rows of a module that knows more tokens are drawn from as by a sampler of that width", "[engine][sample]") {
    Sampler sampler(1000);
    const std::vector<float> wide = random_row(1003);
    const std::vector<float> narrow(wide.begin(), wide.begin() + 1000);
    SamplingParams params;
    params.seed = 4;
    params.logprobs = 3;
    for (const int top_k : {0, 5}) {
        params.top_k = top_k;
        for (const double top_p : {1.0, 0.8}) {
            params.top_p = top_p;
            for (int token = 0; token < 20; ++token)
                for (const auto* row : {&wide, &narrow, &wide}) {
                    Sampler own(static_cast<int>(row->size()));
                    const SampleContext context{.params = params, .seed = 4, .token_index = token};
                    const Sample got = sampler.sample(*row, context);
                    const Sample wanted = own.sample(*row, context);
                    CHECK(got.id == wanted.id);
                    CHECK(got.scores->chosen.logprob == wanted.scores->chosen.logprob);
                    CHECK(got.scores->top.front().id == wanted.scores->top.front().id);
                }
        }
    }
    std::vector<float> last(1003, 0.0F);
    last.back() = 9;
    CHECK(sampler.sample(last, {.params = greedy()}).id == 1002);
    params.logit_bias = {{1001, 50.0F}};
    params.temperature = 0;
    CHECK(sampler.sample(last, {.params = params}).id == 1001);
}

TEST_CASE("a row with one value that is not finite gives no token", "[engine][sample]") {
    Sampler sampler(100);
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        auto row = random_row(100);
        row[97] = odd;
        const SamplingParams params = greedy();
        CHECK(sampler.sample(row, {.params = params}).outcome == Sample::Outcome::non_finite);
        CHECK_FALSE(sampler.score(row, 3, 2));
    }
}

TEST_CASE("end ids cannot come before min_tokens and can from then on", "[engine][sample]") {
    Sampler sampler(4);
    const std::vector<float> row{9.0F, 1.0F, 8.0F, 0.0F};
    const std::vector<TokenId> ends{0, 2};
    SamplingParams params = greedy();
    params.min_tokens = 3;
    CHECK(sampler.sample(row, {.params = params, .token_index = 2, .end_ids = ends}).id == 1);
    CHECK(sampler.sample(row, {.params = params, .token_index = 3, .end_ids = ends}).id == 0);
}

TEST_CASE("a constraint is applied before top-k and top-p", "[engine][sample]") {
    Sampler sampler(100);
    auto row = random_row(100);
    row[40] = -5.0F;
    row[99] = -5.5F;
    AllowList constraint(100, {40, 99});
    SamplingParams params;
    params.top_k = 2;
    std::set<TokenId> seen;
    for (int i = 0; i < 50; ++i) {
        const Sample sample = sampler.sample(row, {.params = params, .token_index = i, .constraint = &constraint});
        REQUIRE(sample.outcome == Sample::Outcome::token);
        seen.insert(sample.id);
    }
    CHECK(seen == std::set<TokenId>{40, 99});
    const SamplingParams best = greedy();
    CHECK(sampler.sample(row, {.params = best, .constraint = &constraint}).id == 40);
}

TEST_CASE("a constraint that allows nothing is told, not drawn from", "[engine][sample]") {
    Sampler sampler(100);
    AllowList constraint(100, {});
    for (const SamplingParams& params : {greedy(), SamplingParams{}}) {
        CHECK(sampler.sample(random_row(100), {.params = params, .constraint = &constraint}).outcome ==
              Sample::Outcome::nothing_allowed);
    }
}

TEST_CASE("a banned token is never drawn, and a strongly favoured one always is", "[engine][sample]") {
    Sampler sampler(3);
    const std::vector<float> row{0.0F, 0.0F, 0.0F};
    SamplingParams params;
    params.logit_bias = {{0, -100.0F}, {1, 100.0F}};
    for (int i = 0; i < 100; ++i) CHECK(sampler.sample(row, {.params = params, .token_index = i}).id == 1);
}

TEST_CASE("top-k keeps tokens equal to the k-th, top-p the lower ids among equals", "[engine][sample]") {
    Sampler sampler(6);
    const std::vector<float> row{1.0F, 2.0F, 1.0F, 2.0F, 1.0F, 0.0F};
    std::vector<float> out(6);
    SamplingParams params;
    params.top_k = 3;
    REQUIRE(sampler.probabilities(row, {.params = params}, out));
    CHECK(out[5] == 0.0F);
    CHECK((out[0] > 0 && out[2] > 0 && out[4] > 0));

    const std::vector<float> equal(6, 1.5F);
    params = {};
    params.top_p = 0.5;
    REQUIRE(sampler.probabilities(equal, {.params = params}, out));
    for (std::size_t i = 0; i < 6; ++i) CHECK(out[i] == Approx(i < 3 ? 1.0 / 3 : 0.0));
}

TEST_CASE("top-p of almost nothing still leaves the best token", "[engine][sample]") {
    Sampler sampler(500);
    const auto row = random_row(500);
    SamplingParams params;
    params.top_p = 1e-9;
    const SamplingParams best = greedy();
    for (int i = 0; i < 20; ++i) {
        CHECK(sampler.sample(row, {.params = params, .token_index = i}).id == sampler.sample(row, {.params = best}).id);
    }
}

TEST_CASE("top-k and top-p of a large flat row keep exactly what they should", "[engine][sample]") {
    const std::size_t vocab = 5000;
    Sampler sampler(static_cast<int>(vocab));
    std::vector<float> row(vocab);
    for (std::size_t i = 0; i < vocab; ++i) row[i] = static_cast<float>((i * 7919) % vocab) * 1e-4F;
    std::vector<float> out(vocab);
    const auto kept = [&] { return std::count_if(out.begin(), out.end(), [](float p) { return p > 0; }); };
    SamplingParams params;
    params.top_k = 1234;
    REQUIRE(sampler.probabilities(row, {.params = params}, out));
    CHECK(kept() == 1234);

    params = {};
    params.top_p = 0.75;
    REQUIRE(sampler.probabilities(row, {.params = params}, out));
    double total = 0;
    for (const float x : row) total += std::exp(static_cast<double>(x));
    auto sorted = row;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double sum = 0;
    long expected = 0;
    while (sum < 0.75 * total) sum += std::exp(static_cast<double>(sorted[static_cast<std::size_t>(expected++)]));
    CHECK(std::abs(kept() - expected) <= 1);
}

TEST_CASE("temperature 100 is nearly uniform and 0.01 nearly greedy", "[engine][sample]") {
    Sampler sampler(4);
    const std::vector<float> row{0.0F, 1.0F, 2.0F, 3.0F};
    std::vector<float> out(4);
    SamplingParams params;
    params.temperature = 100;
    REQUIRE(sampler.probabilities(row, {.params = params}, out));
    for (const float p : out) CHECK(p == Approx(0.25).margin(0.01));
    params.temperature = 0.01;
    REQUIRE(sampler.probabilities(row, {.params = params}, out));
    CHECK(out[3] == 1.0F);
}

TEST_CASE("ranks and top lists break ties by the lower id", "[engine][sample]") {
    Sampler sampler(5);
    const std::vector<float> row{2.0F, 3.0F, 2.0F, 3.0F, 2.0F};
    const auto scores = sampler.score(row, 2, 4);
    REQUIRE(scores);
    CHECK(scores->chosen.rank == 4);
    std::vector<TokenId> ids;
    for (const ScoredToken& token : scores->top) ids.push_back(token.id);
    CHECK(ids == std::vector<TokenId>{1, 3, 0, 2});
}

TEST_CASE("logprobs 0 gives the chosen token's score alone, and more than the vocabulary gives all",
          "[engine][sample]") {
    Sampler sampler(3);
    const std::vector<float> row{0.0F, 1.0F, 2.0F};
    SamplingParams params = greedy();
    params.logprobs = 0;
    auto sample = sampler.sample(row, {.params = params});
    REQUIRE(sample.scores);
    CHECK(sample.scores->top.empty());
    CHECK(sample.scores->chosen.rank == 1);
    params.logprobs = 20;
    CHECK(sampler.sample(row, {.params = params}).scores->top.size() == 3);
}

TEST_CASE("penalties forget a token that was taken back", "[engine][sample]") {
    Sampler sampler(3);
    const std::vector<float> row{2.0F, 1.0F, 0.0F};
    const std::vector<TokenId> prompt{2};
    TokenCounts counts(prompt);
    SamplingParams params = greedy();
    params.presence_penalty = 1.5;
    counts.add(0);
    CHECK(sampler.sample(row, {.params = params, .counts = &counts}).id == 1);
    counts.remove(0);
    CHECK(sampler.sample(row, {.params = params, .counts = &counts}).id == 0);
    params = greedy();
    params.repetition_penalty = 100;
    counts.add(0);
    counts.add(0);
    counts.remove(0);
    CHECK(sampler.sample(row, {.params = params, .counts = &counts}).id == 1);  // one 0 is still there
}

TEST_CASE("presence and frequency look at the output, repetition at the prompt too", "[engine][sample]") {
    Sampler sampler(2);
    const std::vector<float> row{2.0F, 1.5F};
    const std::vector<TokenId> prompt{0, 0, 0};
    const TokenCounts counts(prompt);
    SamplingParams params = greedy();
    params.presence_penalty = 2;
    params.frequency_penalty = 2;
    CHECK(sampler.sample(row, {.params = params, .counts = &counts}).id == 0);
    params.repetition_penalty = 1.5;
    CHECK(sampler.sample(row, {.params = params, .counts = &counts}).id == 1);
}

TEST_CASE("an extreme repetition penalty still gives a token", "[engine][sample]") {
    Sampler sampler(100);
    const auto row = random_row(100);
    std::vector<TokenId> prompt;
    for (int i = 0; i < 100; ++i) prompt.push_back(i);
    const TokenCounts counts(prompt);
    for (const double penalty : {1e-38, 1e6}) {
        SamplingParams params;
        params.repetition_penalty = penalty;
        CHECK(sampler.sample(row, {.params = params, .counts = &counts}).outcome == Sample::Outcome::token);
    }
}
