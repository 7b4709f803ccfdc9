#include "engine/sample/validate.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <limits>

using namespace attune;

namespace {

constexpr int kVocab = 1000;

std::string refused_param(const std::function<void(SamplingParams&)>& change) {
    SamplingParams params;
    params.max_tokens = 16;
    change(params);
    const auto result = validate(params, kVocab, LimitSettings{});
    if (result) return "";
    CHECK(result.error().code == Errc::invalid_argument);
    CHECK(result.error().message.find(result.error().param.substr(0, 4)) != std::string::npos);
    return result.error().param;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the defaults and the ends of every range are accepted", "[engine][sample]") {
    CHECK(refused_param([](auto&) {}).empty());
    CHECK(refused_param([](auto& p) {
              p.temperature = 0;
              p.top_p = 1e-9;
              p.top_k = -1;
              p.min_p = 1;
              p.presence_penalty = -2;
              p.frequency_penalty = 2;
              p.repetition_penalty = 0.01;
              p.min_tokens = 16;
              p.logprobs = 20;
              p.prompt_logprobs = 0;
              p.n = 16;
              p.logit_bias = {{0, -100.0F}, {kVocab - 1, 100.0F}};
              p.stop_token_ids = {0, kVocab - 1};
              p.stop = std::vector<std::string>(16, "x");
          }).empty());
}

TEST_CASE("numbers out of range are refused by the field's name", "[engine][sample][E14]") {
    for (const double bad : {-0.1, kNan, kInf})
        CHECK(refused_param([&](auto& p) { p.temperature = bad; }) == "temperature");
    for (const double bad : {0.0, -1.0, 1.01, kNan}) CHECK(refused_param([&](auto& p) { p.top_p = bad; }) == "top_p");
    for (const double bad : {-0.01, 1.01, kNan}) CHECK(refused_param([&](auto& p) { p.min_p = bad; }) == "min_p");
    for (const int bad : {-2, std::numeric_limits<int>::min()})
        CHECK(refused_param([&](auto& p) { p.top_k = bad; }) == "top_k");
    for (const double bad : {-2.1, 2.1, kNan}) {
        CHECK(refused_param([&](auto& p) { p.presence_penalty = bad; }) == "presence_penalty");
        CHECK(refused_param([&](auto& p) { p.frequency_penalty = bad; }) == "frequency_penalty");
    }
    for (const double bad : {0.0, -1.0, kNan, kInf})
        CHECK(refused_param([&](auto& p) { p.repetition_penalty = bad; }) == "repetition_penalty");
    for (const int bad : {0, -1, 17}) CHECK(refused_param([&](auto& p) { p.n = bad; }) == "n");
    for (const int bad : {-1, 21}) {
        CHECK(refused_param([&](auto& p) { p.logprobs = bad; }) == "logprobs");
        CHECK(refused_param([&](auto& p) { p.prompt_logprobs = bad; }) == "prompt_logprobs");
    }
}

TEST_CASE("max_tokens 0 needs something to say about the prompt", "[engine][sample]") {
    CHECK(refused_param([](auto& p) { p.max_tokens = 0; }) == "max_tokens");
    CHECK(refused_param([](auto& p) { p.max_tokens = -1; }) == "max_tokens");
    CHECK(refused_param([](auto& p) {
              p.max_tokens = 0;
              p.echo = true;
          }).empty());
    CHECK(refused_param([](auto& p) {
              p.max_tokens = 0;
              p.prompt_logprobs = 1;
          }).empty());
    CHECK(refused_param([](auto& p) { p.min_tokens = -1; }) == "min_tokens");
    CHECK(refused_param([](auto& p) { p.min_tokens = 17; }) == "min_tokens");
}

TEST_CASE("logit_bias outside of the vocabulary or range is refused, naming the token", "[engine][sample][E1]") {
    for (const TokenId bad : {-1, kVocab, kVocab + 1})
        CHECK(refused_param([&](auto& p) { p.logit_bias = {{bad, 1.0F}}; }) == "logit_bias");
    for (const float bad : {100.5F, -101.0F, std::numeric_limits<float>::quiet_NaN()})
        CHECK(refused_param([&](auto& p) { p.logit_bias = {{1, bad}}; }) == "logit_bias");
    CHECK(refused_param([](auto& p) { p.logit_bias.assign(1025, {1, 1.0F}); }) == "logit_bias");

    SamplingParams params;
    params.logit_bias = {{kVocab, 1.0F}};
    CHECK(validate(params, kVocab, LimitSettings{}).error().message.find("1000") != std::string::npos);
}

TEST_CASE("stop strings and ids have bounds", "[engine][sample]") {
    CHECK(refused_param([](auto& p) { p.stop = {""}; }) == "stop");
    CHECK(refused_param([](auto& p) { p.stop.assign(17, "x"); }) == "stop");
    CHECK(refused_param([](auto& p) { p.stop = {std::string(257, 'x')}; }) == "stop");
    for (const TokenId bad : {-1, kVocab})
        CHECK(refused_param([&](auto& p) { p.stop_token_ids = {bad}; }) == "stop_token_ids");
}

TEST_CASE("limits are those given", "[engine][sample][E6]") {
    LimitSettings limits;
    limits.n = 2;
    SamplingParams params;
    params.n = 3;
    const auto result = validate(params, kVocab, limits);
    REQUIRE_FALSE(result);
    CHECK(result.error().message == "n must be in [1, 2], got 3.");
}
