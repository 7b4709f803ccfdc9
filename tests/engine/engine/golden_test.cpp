// The whole engine against transformers and PEFT on tiny models, in float32.

#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

TEST_CASE("every model gives the reference's greedy tokens and log-probabilities", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        INFO(model);
        const golden::Case base = golden::read_case(model, "base");
        GoldenHouse house(model);
        for (const golden::Prompt& prompt : base.prompts) {
            const auto sink = house.add(prompt.tokens);
            REQUIRE(house.run());
            CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
            CHECK(sink->tokens().size() == 32);
        }
        CHECK(house.all_free());
    }
}

TEST_CASE("prompts in chunks of any size, side by side, give the same tokens", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        const golden::Case base = golden::read_case(model, "base");
        for (const int step_tokens : {1, 3, 7, 64}) {
            INFO(model << " in steps of " << step_tokens);
            GoldenHouse house(model, {.step_tokens = step_tokens});
            std::vector<std::shared_ptr<RecordingSink>> sinks;
            for (const golden::Prompt& prompt : base.prompts) sinks.push_back(house.add(prompt.tokens));
            REQUIRE(house.run());
            for (std::size_t i = 0; i < sinks.size(); ++i)
                CHECK(difference_from(base.prompts[i], *sinks[i]) <= golden::kTolerance);
        }
    }
}

TEST_CASE("log-probabilities of the prompt are the reference's", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        const golden::Case base = golden::read_case(model, "base");
        const golden::Prompt& prompt = base.prompts[3];
        for (const int step_tokens : {5, 512}) {
            INFO(model << " in steps of " << step_tokens);
            GoldenHouse house(model, {.step_tokens = step_tokens});
            SamplingParams params = GoldenHouse::greedy(0);
            params.prompt_logprobs = 3;
            const auto sink = house.add(prompt.tokens, params);
            REQUIRE(house.run());
            const auto told = sink->one<PromptEvent>();
            REQUIRE(told);
            REQUIRE(told->scores.size() == prompt.tokens.size());
            for (std::size_t i = 1; i < prompt.tokens.size(); ++i) {
                const std::vector<float> row = prompt.logits.row(i - 1);
                double total = 0;
                for (const float logit : row) total += std::exp(static_cast<double>(logit));
                const auto expected =
                    static_cast<double>(row[static_cast<std::size_t>(prompt.tokens[i])]) - std::log(total);
                CHECK(told->scores[i]->chosen.logprob == Approx(expected).margin(1e-4));
            }
        }
    }
}

TEST_CASE("n choices fork the prompt and each goes on as alone", "[engine][golden]") {
    for (const char* const model : {"llama_gqa_tied", "mistral_swa"}) {
        const golden::Case base = golden::read_case(model, "base");
        for (const golden::Prompt& prompt : base.prompts) {
            GoldenHouse house(model, {.step_tokens = 7});
            SamplingParams params = GoldenHouse::greedy();
            params.n = 3;
            const auto sink = house.add(prompt.tokens, params);
            REQUIRE(house.run());
            for (int choice = 0; choice < 3; ++choice)
                CHECK(difference_from(prompt, *sink, choice) <= golden::kTolerance);
            CHECK(house.all_free());
        }
    }
}

TEST_CASE("forked choices that part ways do not write into each other's context", "[engine][golden]") {
    const golden::Prompt prompt = golden::read_case("llama3_rope", "base").prompts[3];
    SamplingParams params = GoldenHouse::greedy(24);
    params.temperature = 1;
    params.seed = 17;
    params.n = 3;
    GoldenHouse house("llama3_rope");
    const auto sink = house.add(prompt.tokens, params);
    REQUIRE(house.run());
    for (int choice = 0; choice < 3; ++choice) {
        // What each drew, read again as a prompt: its scores must be those it was drawn with.
        std::vector<TokenId> context = prompt.tokens;
        const auto ids = sink->ids(choice);
        context.insert(context.end(), ids.begin(), ids.end());
        SamplingParams scoring = GoldenHouse::greedy(0);
        scoring.prompt_logprobs = 0;
        const auto again = house.add(context, scoring);
        REQUIRE(house.run());
        const auto scores = again->one<PromptEvent>()->scores;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            CHECK(scores[prompt.tokens.size() + i]->chosen.logprob ==
                  Approx(sink->tokens(choice)[i].scores->chosen.logprob).margin(1e-4));
        }
    }
    CHECK(sink->ids(0) != sink->ids(1));
}

TEST_CASE("with a pool too small for all, preempted requests give the reference's tokens", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        INFO(model);
        const golden::Case base = golden::read_case(model, "base");
        GoldenHouse house(model, {.step_tokens = 16, .blocks = 8});
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        for (int i = 0; i < 8; ++i) sinks.push_back(house.add(base.prompts[static_cast<std::size_t>(i) % 4].tokens));
        REQUIRE(house.run());
        CHECK(house.preempted > 0);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            CHECK(sinks[i]->tokens().size() == 32);
            CHECK(difference_from(base.prompts[i % 4], *sinks[i]) <= golden::kTolerance);
        }
        CHECK(house.all_free());
    }
}

TEST_CASE("a crowd cancelled midway leaves nothing, and the rest is undisturbed", "[engine][golden]") {
    const golden::Case base = golden::read_case("qwen2_bias", "base");
    GoldenHouse house("qwen2_bias", {.step_tokens = 24});
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 16; ++i) sinks.push_back(house.add(base.prompts[static_cast<std::size_t>(i) % 4].tokens));
    for (int i = 0; i < 12; ++i) house.engine->step();
    for (std::uint64_t id = 1; id <= 16; id += 2) house.engine->cancel(RequestId{id});
    REQUIRE(house.run());
    for (std::size_t i = 0; i < 16; ++i) {
        CHECK(sinks[i]->ended_once());
        if (i % 2 == 1) CHECK(difference_from(base.prompts[i % 4], *sinks[i]) <= golden::kTolerance);
    }
    CHECK(house.all_free());
}

TEST_CASE("a seeded answer on a real model is the same alone and in a crowd", "[engine][golden]") {
    const golden::Prompt prompt = golden::read_case("qwen3_qknorm", "base").prompts[2];
    SamplingParams params = GoldenHouse::greedy(24);
    params.temperature = 0.9;
    params.top_p = 0.95;
    params.seed = 2024;
    const auto answer = [&](int neighbours) {
        GoldenHouse house("qwen3_qknorm", {.step_tokens = 9});
        for (int i = 0; i < neighbours; ++i) house.add(prompt.tokens, GoldenHouse::greedy(5 + i));
        const auto sink = house.add(prompt.tokens, params);
        REQUIRE(house.run());
        return sink->ids();
    };
    CHECK(answer(0) == answer(6));
}
