// Prefixes, soft prompts and invocations in the life of a request. FakeModel adds a module's weight to each step.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

Module named(const std::string& name) {
    Module module;
    module.id = {name, EngineHouse::generation_of(name)};
    module.kind = "lora";
    module.pairs.push_back({0, Projection::q, 1, 1.0F, std::vector<float>(4, 0.0F), std::vector<float>(4, 0.0F)});
    module.max_rank = 1;
    return module;
}

Module with_prefix(const std::string& name, int tokens) {
    Module module = named(name);
    const std::vector<float> values(static_cast<std::size_t>(tokens) * 4, 0.5F);
    module.prefix = PrefixSegment{tokens, values, values};
    return module;
}

Module with_prompt(const std::string& name, int tokens) {
    Module module = named(name);
    module.prompt = SoftPrompt{tokens, std::vector<float>(static_cast<std::size_t>(tokens) * 4, 0.5F)};
    return module;
}

JobModule install(EngineHouse& house, Module module, double weight = 1.0) {
    const auto made = std::make_shared<const Module>(std::move(module));
    const auto slot = house.engine->install(made);
    if (!slot) throw std::runtime_error(slot.error().message);
    return {*slot, {made->id, weight, false}};
}

std::shared_ptr<RecordingSink> add(EngineHouse& house, int id, std::string_view prompt, SamplingParams params,
                                   std::vector<JobModule> modules) {
    auto job = house.job(id, prompt, std::move(params));
    job->modules = std::move(modules);
    return house.add(std::move(job));
}

}  // namespace

TEST_CASE("an aLoRA acts from its invocation in the prompt on, and an invocation in the answer is none",
          "[engine][B4]") {
    EngineHouse house;
    Module late = named("late");
    late.invocation = {'d', 'c'};
    const JobModule module = install(house, late);
    SamplingParams params = greedy(2);
    params.prompt_logprobs = 0;
    const auto invoked = add(house, 1, "abdcg", params, {module});
    const auto not_invoked = add(house, 2, "cd", greedy(3), {module});
    REQUIRE(house.run());
    CHECK(invoked->text() == "ik");
    CHECK(not_invoked->text() == "efg");
    const auto scores = invoked->one<PromptEvent>()->scores;
    CHECK(scores[1]->chosen.rank == 1);  // after a the base says b
    CHECK(scores[2]->chosen.rank > 1);   // after b it says c
    CHECK(scores[4]->chosen.rank > 1);   // after c the module says e, not g
    REQUIRE(not_invoked->finished()->served.size() == 1);
    CHECK(not_invoked->finished()->served[0].modules.size() == 1);
}

TEST_CASE("an upgrade to an aLoRA looks for its invocation in the prompt", "[engine][B4]") {
    EngineHouse house;
    Module late = named("late");
    late.invocation = {'b', 'c'};
    const JobModule module = install(house, late);
    const auto in_answer = house.add(1, "a", greedy(6));
    const auto in_prompt = house.add(2, "abc", greedy(4));
    for (int i = 0; i < 3; ++i) house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {module}));
    CHECK(house.engine->switch_modules(RequestId{2}, {module}));
    REQUIRE(house.run());
    CHECK(in_answer->text() == "bcdefg");
    CHECK(in_prompt->text() == "defh");
}

TEST_CASE("a prefix takes its blocks when it is installed and gives them back", "[engine]") {
    EngineHouse house({.blocks = 4});
    const JobModule module = install(house, with_prefix("prefix", 20));
    CHECK(house.engine->stats().free_blocks == 2);
    const auto second = house.engine->install(std::make_shared<const Module>(with_prefix("second", 33)));
    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::no_room);
    CHECK(second.error().message.find("\"second\" needs 3 free blocks") != std::string::npos);
    CHECK(house.engine->stats().free_blocks == 2);
    const std::uint64_t used = house.engine->stats().slot_bytes;
    house.engine->remove(module.slot);
    CHECK(house.engine->stats().slot_bytes < used);
    CHECK(house.engine->stats().free_blocks == 4);
    CHECK(house.engine->install(std::make_shared<const Module>(with_prefix("third", 64))));
}

TEST_CASE("a prefix that would leave a running request no room is not installed", "[engine]") {
    EngineHouse house({.blocks = 4});
    const auto sink = house.add(1, "a", greedy(60));
    house.step();
    const auto refused = house.engine->install(std::make_shared<const Module>(with_prefix("prefix", 3)));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::no_room);
    CHECK(house.engine->stats().slot_bytes == 0);
    REQUIRE(house.run());
    CHECK(sink->tokens().size() == 60);
    CHECK(house.engine->install(std::make_shared<const Module>(with_prefix("prefix", 3))));
}

TEST_CASE("virtual tokens are not seen in usage, scores, echo or penalties", "[engine]") {
    for (const bool soft : {false, true}) {
        EngineHouse house({.step_tokens = 4});
        const JobModule module = install(house, soft ? with_prompt("p", 7) : with_prefix("p", 7));
        SamplingParams params = greedy(3);
        params.prompt_logprobs = 0;
        params.echo = true;
        params.repetition_penalty = 1.5;
        const auto sink = add(house, 1, "ace", params, {module});
        REQUIRE(house.run());
        CHECK(sink->text() == "gik");
        const auto prompt = sink->one<PromptEvent>();
        REQUIRE(prompt);
        CHECK(prompt->text == "ace");
        REQUIRE(prompt->scores.size() == 3);
        CHECK_FALSE(prompt->scores[0]);
        for (std::size_t i = 1; i < 3; ++i) CHECK(prompt->scores[i]->chosen.rank == 1);
        CHECK(sink->finished()->usage.prompt_tokens == 3);
        CHECK(sink->finished()->usage.completion_tokens == 3);
        house.engine->remove(module.slot);
        CHECK(house.all_free());
    }
}

TEST_CASE("a soft prompt is computed, a prefix is not", "[engine]") {
    EngineHouse house;
    const JobModule soft = install(house, with_prompt("soft", 7));
    const JobModule prefix = install(house, with_prefix("prefix", 7));
    add(house, 1, "abc", greedy(1), {soft});
    CHECK(house.step().prompt_rows == 10);
    add(house, 2, "abc", greedy(1), {prefix});
    CHECK(house.step().prompt_rows == 3);
}

TEST_CASE("virtual tokens count against the context, and the refusal names all numbers", "[engine]") {
    EngineHouse house;
    const JobModule module = install(house, with_prompt("soft", 100));
    const auto sink = add(house, 1, "abc", greedy(410), {module});
    REQUIRE(house.run());
    REQUIRE(sink->failure());
    CHECK(sink->failure()->code == Errc::context_exceeded);
    CHECK(sink->failure()->message ==
          "this model's maximum context length is 512 tokens, but 513 were requested: 3 in "
          "the prompt, 410 for the answer, 100 virtual tokens of a module");
    CHECK_FALSE(add(house, 2, "abc", greedy(409), {module})->failure());
    house.engine->cancel(RequestId{2});
}

TEST_CASE("an answer to the context's end is shortened by virtual tokens", "[engine]") {
    EngineHouse house({.blocks = 40});
    const JobModule module = install(house, with_prefix("prefix", 20));
    for (const bool asked : {true, false}) {
        auto job = house.job(asked ? 1 : 2, "a", greedy(511));
        job->modules = {module};
        job->to_context_end = !asked;
        const auto sink = house.add(std::move(job));
        CHECK(sink->failure().has_value() == asked);
        REQUIRE(house.run());
        if (!asked) CHECK(sink->tokens().size() == 491);
    }
}

TEST_CASE("a request that fits beside no prefix is refused while one is resident", "[engine]") {
    EngineHouse house({.blocks = 4});
    const JobModule module = install(house, with_prefix("prefix", 20));
    const auto base = house.add(1, "a", greedy(40));
    REQUIRE(base->failure());
    CHECK(base->failure()->code == Errc::context_exceeded);
    CHECK(base->failure()->message.find("needs 48 positions of the KV cache, which has 32") != std::string::npos);
    // The prefix's first block is shared, its second is copied.
    const auto fits = add(house, 2, "a", greedy(27), {module});
    CHECK_FALSE(fits->failure());
    REQUIRE(house.run());
    CHECK(fits->tokens().size() == 27);
    CHECK(add(house, 3, "a", greedy(28), {module})->failure());
}

TEST_CASE("weights of virtual tokens are checked at admission", "[engine]") {
    EngineHouse house;
    const JobModule soft = install(house, with_prompt("soft", 3));
    JobModule half = soft;
    half.applied.weight = 0.5;
    JobModule off = soft;
    off.applied.weight = 0;
    const auto refused = add(house, 1, "a", greedy(2), {half});
    REQUIRE(refused->failure());
    CHECK(refused->failure()->code == Errc::invalid_argument);
    CHECK(refused->failure()->message.find("\"soft\"") != std::string::npos);
    const auto base = add(house, 2, "a", greedy(2), {off});
    const auto step = house.step();
    CHECK(step.prompt_rows == 1);
    REQUIRE(house.run());
    CHECK(base->text() == "bc");
    CHECK(add(house, 3, "a", greedy(2), {soft, install(house, with_prefix("prefix", 2))})->failure());
}

TEST_CASE("preempted requests begin again from their virtual tokens", "[engine]") {
    EngineHouse house({.blocks = 9, .step_tokens = 8});
    const JobModule prefix = install(house, with_prefix("prefix", 20));
    const JobModule soft = install(house, with_prompt("soft", 9));
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int id = 1; id <= 6; ++id) sinks.push_back(add(house, id, "a", greedy(40), {id % 2 == 0 ? prefix : soft}));
    REQUIRE(house.run());
    CHECK(house.preempted > 0);
    EngineHouse alone;
    const auto expected = add(alone, 1, "a", greedy(40), {install(alone, with_prefix("prefix", 20))});
    REQUIRE(alone.run());
    for (const auto& sink : sinks) CHECK(sink->ids() == expected->ids());
    house.engine->remove(prefix.slot);
    CHECK(house.all_free());
}

TEST_CASE("choices of one prompt share its prefix", "[engine]") {
    EngineHouse house;
    const JobModule prefix = install(house, with_prefix("prefix", 20));
    SamplingParams params = greedy(30);
    params.n = 3;
    const auto sink = add(house, 1, "a", params, {prefix});
    REQUIRE(house.run());
    for (int choice = 0; choice < 3; ++choice) {
        CHECK(sink->tokens(choice).size() == 30);
        CHECK(sink->ids(choice) == sink->ids(0));
    }
    house.engine->remove(prefix.slot);
    CHECK(house.all_free());
}

TEST_CASE("an upgrade to a prefix reads the context again behind it", "[engine]") {
    EngineHouse house;
    const auto sink = house.add(1, "a", greedy(6));
    for (int i = 0; i < 2; ++i) house.step();
    const JobModule prefix = install(house, with_prefix("prefix", 20));
    CHECK(house.engine->switch_modules(RequestId{1}, {prefix}));
    CHECK(house.step().prompt_rows == 3);
    const JobModule soft = install(house, with_prompt("soft", 4));
    CHECK(house.engine->switch_modules(RequestId{1}, {soft}));
    house.engine->remove(prefix.slot);
    CHECK(house.step().prompt_rows == 8);
    REQUIRE(house.run());
    CHECK(sink->text() == "bcegik");
    CHECK(house.all_free());
}

TEST_CASE("an upgrade that its virtual tokens make too long, or that cannot act, leaves the base", "[engine]") {
    EngineHouse house;
    const auto sink = house.add(1, "a", greedy(500));
    house.step();
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {install(house, with_prompt("soft", 12))}));
    JobModule half = install(house, with_prompt("short", 2));
    half.applied.weight = 0.5;
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {half}));
    CHECK_FALSE(sink->one<Switched>());
    half.applied.weight = 1;
    CHECK(house.engine->switch_modules(RequestId{1}, {half}));
    house.engine->cancel(RequestId{1});
}
