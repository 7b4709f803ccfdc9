// Modules on real rows: each request as if it were alone, whatever runs beside it.

#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// The base and every LoRA case that the reference has for this model.
std::vector<std::string> names_of(const std::string& model) {
    std::vector<std::string> names{"base"};
    for (const char* name : {"lora_r4", "lora_r4_b", "lora_r6_qv", "rslora_patterns", "lora_all_linear",
                             "lora_layer0_excl", "lora_regex_l1"}) {
        if (std::filesystem::exists(golden::adapter_folder(model, name))) names.emplace_back(name);
    }
    return names;
}

}  // namespace

TEST_CASE("every LoRA case gives the reference's tokens, alone", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model);
        for (const std::string& name : names_of(model)) {
            INFO(model << " " << name);
            const golden::Case expected = golden::read_case(model, name);
            for (const golden::Prompt& prompt : expected.prompts) {
                const auto sink = house.add(prompt.tokens, GoldenHouse::greedy(), house.modules_of(name));
                REQUIRE(house.run());
                CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
            }
        }
    }
}

TEST_CASE("32 requests over the base and every LoRA give what each gives alone", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        for (const int step_tokens : {11, 512}) {
            GoldenHouse house(model, {.step_tokens = step_tokens});
            const std::vector<std::string> names = names_of(model);
            CHECK(names.size() >= 5);
            std::map<std::string, golden::Case> expected;
            for (const std::string& name : names) expected.emplace(name, golden::read_case(model, name));
            const auto name_of = [&](std::size_t i) { return names[i % names.size()]; };
            const auto prompt_of = [&](std::size_t i) -> const golden::Prompt& {
                return expected.at(name_of(i)).prompts[i / names.size() % 4];
            };
            std::vector<std::shared_ptr<RecordingSink>> sinks;
            for (std::size_t i = 0; i < 32; ++i)
                sinks.push_back(house.add(prompt_of(i).tokens, GoldenHouse::greedy(), house.modules_of(name_of(i))));
            REQUIRE(house.run());
            for (std::size_t i = 0; i < 32; ++i) {
                INFO(model << " " << name_of(i) << " request " << i << " in steps of " << step_tokens);
                CHECK(difference_from(prompt_of(i), *sinks[i]) <= golden::kTolerance);
                const auto served = sinks[i]->finished()->served;
                REQUIRE(served.size() == 1);
                CHECK(served[0].modules.size() == (name_of(i) == "base" ? 0U : 1U));
                CHECK(served[0].tokens == 32);
            }
            CHECK(house.all_free());
        }
    }
}

TEST_CASE("a module of weight 0 is the base exactly", "[engine][golden]") {
    const golden::Case base = golden::read_case("llama_gqa_tied", "base");
    GoldenHouse house("llama_gqa_tied");
    const auto plain = house.add(base.prompts[3].tokens);
    REQUIRE(house.run());
    const auto off = house.add(base.prompts[3].tokens, GoldenHouse::greedy(), {house.module("lora_r4", 0.0)});
    REQUIRE(house.run());
    for (std::size_t i = 0; i < 32; ++i) {
        CHECK(plain->tokens()[i].id == off->tokens()[i].id);
        CHECK(plain->tokens()[i].scores->chosen.logprob == off->tokens()[i].scores->chosen.logprob);
    }
}

TEST_CASE("two modules on one request add up, as one with the sum of their weights", "[engine][golden]") {
    const golden::Case base = golden::read_case("llama3_rope", "base");
    GoldenHouse house("llama3_rope");
    const auto once = house.add(base.prompts[2].tokens, GoldenHouse::greedy(12), {house.module("lora_r4", 1.0)});
    const auto halves = house.add(base.prompts[2].tokens, GoldenHouse::greedy(12),
                                  {house.module("lora_r4", 0.25), house.module("lora_r4", 0.75)});
    REQUIRE(house.run());
    CHECK(difference_between(once->tokens(), halves->tokens()) <= golden::kTolerance);
}

TEST_CASE("one prompt asked of base, module, half a module and back gives each its own answer",
          "[engine][golden][A3][A4]") {
    const golden::Prompt prompt = golden::read_case("llama_gqa_tied", "base").prompts[3];
    using Modules = std::vector<std::pair<std::string, double>>;
    const std::vector<Modules> asked{{}, {{"lora_r4", 1.0}}, {{"lora_r4_b", 1.0}}, {{"lora_r4", 0.5}}};
    const auto answer = [&](GoldenHouse& house, const Modules& modules) {
        std::vector<JobModule> jobs;
        for (const auto& [name, weight] : modules) jobs.push_back(house.module(name, weight));
        const auto sink = house.add(prompt.tokens, GoldenHouse::greedy(12), std::move(jobs));
        REQUIRE(house.run());
        return sink->tokens();
    };
    std::vector<std::vector<TokenEvent>> alone;
    for (const Modules& modules : asked) {
        GoldenHouse fresh("llama_gqa_tied");
        alone.push_back(answer(fresh, modules));
    }
    GoldenHouse house("llama_gqa_tied");
    for (const std::size_t turn : std::vector<std::size_t>{0, 1, 0, 2, 1, 3, 1, 0, 3})
        CHECK(difference_between(alone[turn], answer(house, asked[turn])) <= golden::self_tolerance());
    // The four differ, or the test would tell nothing.
    for (std::size_t i = 1; i < alone.size(); ++i)
        CHECK(std::fabs(alone[0][0].scores->chosen.logprob - alone[i][0].scores->chosen.logprob) > 1e-3F);
}

TEST_CASE("A16: a slot that another module had before serves its present one", "[engine][golden][A16]") {
    const std::string model = "llama_gqa_tied";
    GoldenHouse house(model);
    for (const char* const name : {"lora_r4", "lora_r4_b", "rslora_patterns", "lora_r4", "lora_r4_b"}) {
        INFO(name);
        const golden::Prompt prompt = golden::read_case(model, name).prompts[2];
        const JobModule module = house.module(name);
        CHECK(value_of(module.slot) == 0);
        const auto sink = house.add(prompt.tokens, GoldenHouse::greedy(), {module});
        REQUIRE(house.run());
        CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
        house.engine->remove(module.slot);
        house.slots.clear();
    }
}

TEST_CASE("after an upgrade the text is what the module gives on that context", "[engine][golden]") {
    for (const std::string& model : golden::models()) {
        for (const int base_tokens : {0, 1, 9}) {
            INFO(model << " after " << base_tokens << " tokens");
            const golden::Prompt prompt = golden::read_case(model, "base").prompts[3];
            GoldenHouse house(model, {.step_tokens = 16});
            const auto bystander = house.add(prompt.tokens);
            const auto sink = house.add(prompt.tokens, GoldenHouse::greedy(24));
            while (static_cast<int>(sink->tokens().size()) < base_tokens) house.engine->step();
            const auto made = static_cast<int>(sink->tokens().size());
            REQUIRE(house.engine->switch_modules(RequestId{2}, {house.module("lora_r4")}));
            REQUIRE(house.run());
            CHECK(sink->one<Switched>()->base_tokens == made);

            std::vector<TokenId> context = prompt.tokens;
            const auto ids = sink->ids();
            context.insert(context.end(), ids.begin(), ids.begin() + made);
            const auto alone = house.add(context, GoldenHouse::greedy(24 - made), {house.module("lora_r4")});
            REQUIRE(house.run());
            const auto tokens = sink->tokens();
            const std::vector<TokenEvent> after(tokens.begin() + made, tokens.end());
            CHECK(difference_between(alone->tokens(), after) <= golden::self_tolerance());
            CHECK(difference_from(prompt, *bystander) <= golden::kTolerance);
            CHECK(house.all_free());
        }
    }
}

TEST_CASE("upgraded choices that were preempted on the way still follow the module", "[engine][golden]") {
    const std::string model = "llama_gqa_tied";
    const golden::Prompt prompt = golden::read_case(model, "base").prompts[3];
    const auto answer = [&](int blocks) {
        GoldenHouse house(model, {.step_tokens = 16, .blocks = blocks});
        SamplingParams params = GoldenHouse::greedy(30);
        params.n = 2;
        const auto older = house.add(prompt.tokens, GoldenHouse::greedy(40));
        const auto sink = house.add(prompt.tokens, params);
        while (sink->tokens().size() < 5) house.engine->step();
        REQUIRE(house.engine->switch_modules(RequestId{2}, {house.module("rslora_patterns")}));
        REQUIRE(house.run());
        CHECK(difference_from(prompt, *older) <= golden::kTolerance);
        CHECK((blocks > 20 || house.preempted > 0));
        CHECK(house.all_free());
        return sink;
    };
    const auto roomy = answer(64);
    const auto tight = answer(6);
    for (int choice = 0; choice < 2; ++choice)
        CHECK(difference_between(roomy->tokens(choice), tight->tokens(choice)) <= golden::self_tolerance());
}

TEST_CASE("A5: a module installed while others run changes nothing for them", "[engine][golden][A5]") {
    const golden::Prompt prompt = golden::read_case("mistral_swa", "lora_r4").prompts[2];
    GoldenHouse house("mistral_swa");
    const auto sink = house.add(prompt.tokens, GoldenHouse::greedy(), house.modules_of("lora_r4"));
    int installed = 0;
    for (const std::string& name : names_of("mistral_swa")) {
        for (int i = 0; i < 3; ++i) house.engine->step();
        installed += static_cast<int>(house.modules_of(name).size());
    }
    REQUIRE(house.run());
    CHECK(installed >= 4);
    CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
    for (const auto& [name, module] : house.slots) house.engine->remove(module.slot);
    CHECK(house.engine->stats().slot_bytes == 0);
}
