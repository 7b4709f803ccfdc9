// Every kind of module, from its files to its tokens, against transformers and PEFT.

#include "support/golden_house.hpp"
#include "support/kernel_words.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace attune;

namespace {

struct NamedCase {
    std::string name;
    std::vector<std::pair<std::string, double>> adapters;  ///< and their weights; none: the base
};

/// The base, every adapter and every weighted sum of adapters in the index. Left out: PEFT's `linear` combinations,
/// which are no sum of effects (ADAPTERS 9) and lie in no file, and the two states, which have no package.
std::vector<NamedCase> cases_of(const std::string& model) {
    std::vector<NamedCase> cases;
    const auto index = golden::read_json(golden::root() / "index.json");
    for (const auto& entry : index.at("cases")) {
        if (entry.at("model") != model) continue;
        NamedCase one{entry.at("case"), {}};
        const std::string kind = entry.at("kind");
        if (kind == "state") continue;
        if (kind == "adapter") one.adapters.emplace_back(entry.at("adapter"), 1.0);
        if (kind == "weighted") {
            if (entry.at("combination") != "cat") continue;
            for (std::size_t i = 0; i < entry.at("adapters").size(); ++i)
                one.adapters.emplace_back(entry.at("adapters")[i], entry.at("weights")[i]);
        }
        cases.push_back(std::move(one));
    }
    return cases;
}

std::vector<JobModule> modules_of(GoldenHouse& house, const NamedCase& one) {
    std::vector<JobModule> modules;
    for (const auto& [name, weight] : one.adapters) modules.push_back(house.module(name, weight));
    return modules;
}

/// Tokens and the bits of their log-probabilities.
std::vector<std::pair<TokenId, float>> bits_of(const RecordingSink& sink) {
    std::vector<std::pair<TokenId, float>> bits;
    if (const auto prompt = sink.one<PromptEvent>()) {
        for (const auto& scores : prompt->scores)
            if (scores) bits.emplace_back(scores->chosen.id, scores->chosen.logprob);
    }
    for (const TokenEvent& token : sink.tokens())
        for (const ScoredToken& one : token.scores->top) bits.emplace_back(one.id, one.logprob);
    return bits;
}

SamplingParams with_prompt_scores() {
    SamplingParams params = GoldenHouse::greedy();
    params.prompt_logprobs = 0;
    return params;
}

struct Picked {
    NamedCase of;
    std::vector<TokenId> prompt;
};

/// 16 of the model's cases, each with one of its prompts.
std::vector<Picked> mixture(const std::string& model, unsigned seed) {
    std::mt19937 random(seed);
    const std::vector<NamedCase> cases = cases_of(model);
    std::vector<Picked> picked;
    for (int i = 0; i < 16; ++i) {
        const NamedCase& one = cases[random() % cases.size()];
        picked.push_back({one, golden::read_case(model, one.name).prompts[random() % 4].tokens});
    }
    return picked;
}

}  // namespace

TEST_CASE("every reference case gives the reference's prompt rows and tokens", "[engine][golden][B1]") {
    const std::string kernels = GENERATE(from_range(testing::kernel_words()));
    CAPTURE(kernels);
    int seen = 0;
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model, {.kernels = kernels});
        for (const NamedCase& one : cases_of(model)) {
            INFO(model << " " << one.name);
            const golden::Case expected = golden::read_case(model, one.name);
            for (const golden::Prompt& prompt : expected.prompts) {
                const auto sink = house.add(prompt.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size),
                                            modules_of(house, one));
                REQUIRE(house.run());
                CHECK(prompt_difference_from(prompt, *sink) <= golden::kTolerance);
                CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
            }
            ++seen;
        }
        house.clear();
        CHECK(house.all_free());
    }
    CHECK(seen == 5 + 93 + 10);
}

TEST_CASE("sixteen requests of all kinds have the bits that each has alone", "[engine][golden][B19]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse alone(model);
        std::vector<std::vector<std::pair<TokenId, float>>> expected;
        const auto picked = mixture(model, 5);
        for (const Picked& one : picked) {
            const auto sink = alone.add(one.prompt, with_prompt_scores(), modules_of(alone, one.of));
            REQUIRE(alone.run());
            expected.push_back(bits_of(*sink));
        }
        // Side by side, then in chunks of a few rows with prompts cut anywhere.
        for (const int step_tokens : {512, 7}) {
            GoldenHouse house(model, {.step_tokens = step_tokens});
            std::vector<std::shared_ptr<RecordingSink>> sinks;
            for (const Picked& one : picked)
                sinks.push_back(house.add(one.prompt, with_prompt_scores(), modules_of(house, one.of)));
            REQUIRE(house.run());
            for (std::size_t i = 0; i < sinks.size(); ++i) {
                INFO(model << " " << picked[i].of.name << " in steps of " << step_tokens);
                CHECK(bits_of(*sinks[i]) == expected[i]);
            }
        }
    }
}

TEST_CASE("preempted requests of all kinds have the bits that each has alone", "[engine][golden][B19]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse alone(model);
        GoldenHouse house(model, {.step_tokens = 16, .blocks = 12});
        const auto picked = mixture(model, 11);
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        for (const Picked& one : picked)
            sinks.push_back(house.add(one.prompt, GoldenHouse::greedy(), modules_of(house, one.of)));
        REQUIRE(house.run());
        CHECK(house.preempted > 0);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            INFO(model << " " << picked[i].of.name);
            const auto sink = alone.add(picked[i].prompt, GoldenHouse::greedy(), modules_of(alone, picked[i].of));
            REQUIRE(alone.run());
            CHECK(bits_of(*sinks[i]) == bits_of(*sink));
        }
        house.clear();
        CHECK(house.all_free());
    }
}

TEST_CASE("an aLoRA that the prompt does not invoke is the base to the bit", "[engine][golden][B4]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model);
        const golden::Case base = golden::read_case(model, "base");
        for (const std::size_t prompt : {0U, 1U, 3U}) {
            const auto with = house.add(base.prompts[prompt].tokens, with_prompt_scores(), {house.module("alora")});
            const auto without = house.add(base.prompts[prompt].tokens, with_prompt_scores());
            REQUIRE(house.run());
            CHECK(bits_of(*with) == bits_of(*without));
        }
    }
}

TEST_CASE("a module of weight 0 is the base to the bit, whatever its kind", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model);
        const golden::Prompt prompt = golden::read_case(model, "base").prompts[2];
        const auto base = house.add(prompt.tokens, with_prompt_scores());
        REQUIRE(house.run());
        for (const NamedCase& one : cases_of(model)) {
            if (one.adapters.size() != 1) continue;
            INFO(model << " " << one.name);
            const auto off = house.add(prompt.tokens, with_prompt_scores(), {house.module(one.adapters[0].first, 0.0)});
            REQUIRE(house.run());
            CHECK(bits_of(*off) == bits_of(*base));
        }
    }
}

TEST_CASE("a request that is switched to a prefix goes on as one that began with it", "[engine][golden]") {
    const std::string model = "qwen3_qknorm";
    for (const char* const name : {"prefix5", "prompt6", "alora"}) {
        GoldenHouse house(model);
        INFO(name);
        const std::vector<TokenId> prompt = golden::read_case(model, "base").prompts[2].tokens;
        const auto sink = house.add(prompt, GoldenHouse::greedy(20));
        for (int i = 0; i < 4; ++i) house.engine->step();
        REQUIRE(house.engine->switch_modules(RequestId{1}, {house.module(name)}));
        REQUIRE(house.run());
        // The base's tokens as part of the prompt; the invocation lies before them.
        std::vector<TokenId> context = prompt;
        const auto ids = sink->ids();
        context.insert(context.end(), ids.begin(), ids.begin() + 4);
        const auto again = house.add(context, GoldenHouse::greedy(16), {house.module(name)});
        REQUIRE(house.run());
        const auto expected = again->tokens();
        const auto got = sink->tokens();
        REQUIRE(got.size() == 20);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            CHECK(got[4 + i].id == expected[i].id);
            CHECK(got[4 + i].scores->chosen.logprob == expected[i].scores->chosen.logprob);
        }
    }
}
