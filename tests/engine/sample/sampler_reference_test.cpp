// The sampler against probabilities computed with torch and transformers (make_sampling_cases.py).

#include "engine/sample/sampler.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <vector>

using namespace attune;
using nlohmann::json;

namespace {

json read_cases() {
    std::ifstream file(ATTUNE_SAMPLING_CASES);
    REQUIRE(file);
    return json::parse(file);
}

SamplingParams params_of(const json& from) {
    SamplingParams params;
    params.temperature = from.value("temperature", 1.0);
    params.top_k = from.value("top_k", 0);
    params.top_p = from.value("top_p", 1.0);
    params.min_p = from.value("min_p", 0.0);
    params.repetition_penalty = from.value("repetition_penalty", 1.0);
    params.presence_penalty = from.value("presence_penalty", 0.0);
    params.frequency_penalty = from.value("frequency_penalty", 0.0);
    if (from.contains("logit_bias"))
        params.logit_bias = from["logit_bias"].get<std::vector<std::pair<TokenId, float>>>();
    return params;
}

TokenCounts counts_of(const json& cases) {
    TokenCounts counts(cases["prompt"].get<std::vector<TokenId>>());
    for (const TokenId id : cases["output"].get<std::vector<TokenId>>()) counts.add(id);
    return counts;
}

std::vector<float> dense(const json& pairs, std::size_t vocab) {
    std::vector<float> out(vocab, 0.0F);
    for (const json& pair : pairs) out[pair[0].get<std::size_t>()] = pair[1].get<float>();
    return out;
}

}  // namespace

TEST_CASE("every parameter changes the distribution as vLLM's do", "[engine][sample]") {
    const json cases = read_cases();
    const TokenCounts counts = counts_of(cases);
    int compared = 0;
    for (const json& row : cases["rows"]) {
        const auto logits = row["logits"].get<std::vector<float>>();
        Sampler sampler(static_cast<int>(logits.size()));
        for (const json& entry : row["cases"]) {
            INFO(row["row"] << " " << entry["params"]);
            const SamplingParams params = params_of(entry["params"]);
            std::vector<float> got(logits.size());
            REQUIRE(sampler.probabilities(logits, {.params = params, .counts = &counts}, got));
            const auto expected = dense(entry["probabilities"], logits.size());
            float worst = 0;
            for (std::size_t i = 0; i < got.size(); ++i) {
                CHECK((got[i] > 0) == (expected[i] > 0));
                worst = std::max(worst, std::fabs(got[i] - expected[i]));
            }
            CHECK(worst < 2e-6F);
            ++compared;
        }
    }
    CHECK(compared >= 45);
}

TEST_CASE("drawn tokens follow the distribution", "[engine][sample]") {
    const json cases = read_cases();
    const TokenCounts counts = counts_of(cases);
    const int draws = 20000;
    for (const json& row : cases["rows"]) {
        const auto logits = row["logits"].get<std::vector<float>>();
        Sampler sampler(static_cast<int>(logits.size()));
        for (const json& entry : row["cases"]) {
            INFO(row["row"] << " " << entry["params"]);
            const SamplingParams params = params_of(entry["params"]);
            const auto expected = dense(entry["probabilities"], logits.size());
            std::vector<int> seen(logits.size(), 0);
            for (int i = 0; i < draws; ++i) {
                const Sample sample =
                    sampler.sample(logits, {.params = params, .seed = 11, .token_index = i, .counts = &counts});
                ++seen[static_cast<std::size_t>(sample.id)];
            }
            for (std::size_t i = 0; i < seen.size(); ++i) {
                const double p = static_cast<double>(expected[i]);
                if (p == 0) {
                    CHECK(seen[i] == 0);
                    continue;
                }
                // Six standard deviations: the seed is fixed, so this either holds or does not.
                CHECK(std::fabs(seen[i] - draws * p) <= 6 * std::sqrt(draws * p * (1 - p)) + 1);
            }
        }
    }
}

TEST_CASE("log-probabilities are those of the raw logits, whatever the parameters", "[engine][sample]") {
    const json cases = read_cases();
    const TokenCounts counts = counts_of(cases);
    for (const json& row : cases["rows"]) {
        const auto logits = row["logits"].get<std::vector<float>>();
        const auto expected = row["logprobs"].get<std::vector<float>>();
        const auto top_ids = row["top_ids"].get<std::vector<TokenId>>();
        Sampler sampler(static_cast<int>(logits.size()));
        for (const json& entry : row["cases"]) {
            SamplingParams params = params_of(entry["params"]);
            params.logprobs = static_cast<int>(top_ids.size());
            const Sample sample = sampler.sample(logits, {.params = params, .seed = 5, .counts = &counts});
            REQUIRE(sample.scores);
            CHECK(sample.scores->chosen.id == sample.id);
            const float chosen = expected[static_cast<std::size_t>(sample.id)];
            CHECK(sample.scores->chosen.logprob == Approx(chosen).margin(2e-6));
            CHECK(sample.scores->chosen.rank ==
                  1 + std::count_if(expected.begin(), expected.end(), [&](float x) { return x > chosen; }));
            REQUIRE(sample.scores->top.size() == top_ids.size());
            for (std::size_t i = 0; i < top_ids.size(); ++i) {
                CHECK(sample.scores->top[i].id == top_ids[i]);
                CHECK(sample.scores->top[i].rank == static_cast<int>(i) + 1);
                CHECK(sample.scores->top[i].logprob ==
                      Approx(expected[static_cast<std::size_t>(top_ids[i])]).margin(2e-6));
            }
        }
    }
}
