// Cold policy "revise": the base answers, and its whole answer is made again by the module. FakeModel adds a module's
// weight to each step.

#include "support/engine_house.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

std::unique_ptr<Job> revised_job(EngineHouse& house, std::string_view prompt, SamplingParams params) {
    auto job = house.job(1, prompt, std::move(params));
    job->revise = true;
    return job;
}

/// What the same request gets from a module that is warm.
std::shared_ptr<RecordingSink> warm_answer(std::string_view prompt, const SamplingParams& params) {
    EngineHouse house;
    house.knobs->peak = params.temperature > 0 ? 1 : house.knobs->peak;
    auto job = house.job(1, prompt, params);
    job->modules = {house.module("legal")};
    const auto sink = house.add(std::move(job));
    CHECK(house.run());
    return sink;
}

int sum(const std::vector<ServedEntry>& served) {
    int tokens = 0;
    for (const ServedEntry& entry : served) tokens += entry.tokens;
    return tokens;
}

}  // namespace

TEST_CASE("a revision in mid-answer makes the whole answer again, and both passes count", "[engine][revise]") {
    EngineHouse house;
    const auto sink = house.add(revised_job(house, "a", greedy(5)));
    for (int i = 0; i < 2; ++i) house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    const auto revised = sink->one<Revised>();
    REQUIRE(revised);
    CHECK(revised->base_tokens == 2);
    REQUIRE(revised->modules.size() == 1);
    CHECK(revised->modules[0].id.name == "legal");
    REQUIRE(house.run());
    CHECK(sink->text() == "cegik");
    CHECK(sink->ids() == warm_answer("a", greedy(5))->ids());
    const Finished finished = *sink->finished();
    REQUIRE(finished.served.size() == 2);
    CHECK(finished.served[0].modules.empty());
    CHECK(finished.served[0].tokens == 2);
    CHECK(finished.served[1].modules[0].id.name == "legal");
    CHECK(finished.served[1].tokens == 5);  // max_tokens bounds each pass
    CHECK(finished.usage.completion_tokens == 7);
    CHECK(finished.usage.prompt_tokens == 1);
    REQUIRE(house.ended.size() == 1);
    CHECK(house.ended[0].usage.completion_tokens == 7);
    CHECK(house.all_free());
}

TEST_CASE("an answer that ends before its module comes waits without work, and is revised", "[engine][revise]") {
    EngineHouse house;
    const auto sink = house.add(revised_job(house, "a", greedy(3)));
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
    CHECK(sink->finish());
    CHECK_FALSE(sink->finished());
    CHECK_FALSE(house.engine->has_work());
    CHECK(house.engine->has_job(RequestId{1}));
    CHECK(house.engine->stats().free_blocks == house.engine->stats().total_blocks);
    CHECK(house.engine->stats().waiting == 1);
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    CHECK(house.engine->has_work());
    REQUIRE(house.run());
    CHECK(sink->text() == "ceg");
    CHECK(sink->ended_once());
    CHECK(sink->finished()->usage.completion_tokens == 6);
    CHECK_FALSE(house.engine->has_job(RequestId{1}));
}

TEST_CASE("an answer that is kept ends as the base made it", "[engine][revise]") {
    EngineHouse house;
    SECTION("when it had come to its end") {
        const auto sink = house.add(revised_job(house, "a", greedy(3)));
        REQUIRE(house.run());
        house.engine->stop_waiting(RequestId{1});
        REQUIRE(house.run());
        CHECK(sink->text() == "bcd");
        CHECK(sink->ended_once());
        REQUIRE(sink->finished()->served.size() == 1);
        CHECK(sink->finished()->served[0].modules.empty());
        CHECK(house.ended[0].outcome == "length");
    }
    SECTION("when it comes to its end") {
        const auto sink = house.add(revised_job(house, "a", greedy(3)));
        house.step();
        house.engine->stop_waiting(RequestId{1});
        REQUIRE(house.run());
        CHECK(sink->text() == "bcd");
        CHECK(sink->ended_once());
    }
    SECTION("but modules that come before that still revise it") {
        const auto sink = house.add(revised_job(house, "a", greedy(3)));
        house.step();
        house.engine->stop_waiting(RequestId{1});
        CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
        REQUIRE(house.run());
        CHECK(sink->text() == "ceg");
        CHECK(sink->ended_once());
    }
}

TEST_CASE("a revision that cannot be made keeps the base's answer", "[engine][revise]") {
    EngineHouse house;
    const JobModule gone = house.module("legal");
    house.engine->remove(gone.slot);
    const bool ended = GENERATE(true, false);
    const auto sink = house.add(revised_job(house, "a", greedy(3)));
    if (ended)
        REQUIRE(house.run());
    else
        house.step();
    CHECK_FALSE(house.engine->switch_modules(RequestId{1}, {gone}));
    REQUIRE(house.run());
    CHECK(sink->text() == "bcd");
    CHECK(sink->ended_once());
    CHECK_FALSE(sink->one<Revised>());
    CHECK(sink->finished()->usage.completion_tokens == 3);
}

TEST_CASE("all choices begin again, those that had ended too", "[engine][revise]") {
    SamplingParams params = greedy(60);
    params.temperature = 1;
    params.seed = 3;
    params.n = 3;
    params.stop_token_ids = {'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm'};
    const auto warm = warm_answer("a", params);
    EngineHouse house;
    house.knobs->peak = 1;
    const auto sink = house.add(revised_job(house, "a", params));
    while (sink->all<ChoiceFinished>().empty()) house.step();
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    REQUIRE(house.run());
    CHECK(sink->all<ChoiceFinished>().size() == 3);
    for (int choice = 0; choice < 3; ++choice) CHECK(sink->ids(choice) == warm->ids(choice));
    const Finished finished = *sink->finished();
    CHECK(sum(finished.served) == finished.usage.completion_tokens);
    CHECK(finished.served.size() == 6);
    CHECK(finished.usage.completion_tokens > warm->finished()->usage.completion_tokens);
    CHECK(house.all_free());
}

TEST_CASE("echo and prompt scores are the module's, too", "[engine][revise]") {
    SamplingParams params = greedy(2);
    params.prompt_logprobs = 1;
    params.echo = true;
    EngineHouse house({.step_tokens = 2});
    const auto sink = house.add(revised_job(house, "abcdef", params));
    const bool before_prompt_ends = GENERATE(true, false);
    before_prompt_ends ? void(house.step()) : void(house.run());
    CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
    REQUIRE(house.run());
    const auto prompt = sink->one<PromptEvent>();
    REQUIRE(prompt);
    CHECK(prompt->text == "abcdef");
    const auto warm = warm_answer("abcdef", params)->one<PromptEvent>();
    REQUIRE(prompt->scores.size() == warm->scores.size());
    for (std::size_t i = 1; i < 6; ++i) {
        CHECK(prompt->scores[i]->chosen.logprob == warm->scores[i]->chosen.logprob);
        CHECK(prompt->scores[i]->chosen.rank != 1);  // the base's first guess
    }
}

TEST_CASE("a prompt without an answer is revised as well", "[engine][revise]") {
    EngineHouse house;
    SamplingParams params = greedy(0);
    params.n = 2;
    params.echo = true;
    const auto sink = house.add(revised_job(house, "abc", params));
    REQUIRE(house.run());
    CHECK_FALSE(sink->finished());
    SECTION("and can be cancelled meanwhile, each choice ending once") {
        house.engine->cancel(RequestId{1});
        CHECK(sink->all<ChoiceFinished>().size() == 2);
    }
    SECTION("by its module") {
        CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
        REQUIRE(house.run());
        CHECK(sink->all<ChoiceFinished>().size() == 2);
        CHECK(sink->finished()->usage.completion_tokens == 0);
    }
    REQUIRE(house.run());
    CHECK(sink->ended_once());
}

TEST_CASE("a cancel ends a revised request in every phase", "[engine][revise]") {
    EngineHouse house;
    const auto sink = house.add(revised_job(house, "a", greedy(3)));
    const std::string phase = GENERATE("first pass", "waiting", "second pass");
    if (phase == "first pass") house.step();
    if (phase != "first pass") REQUIRE(house.run());
    if (phase == "second pass") {
        CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
        house.step();
    }
    house.engine->cancel(RequestId{1});
    REQUIRE(house.run());
    CHECK(sink->ended_once());
    CHECK(sink->all<ChoiceFinished>().size() == 1);
    CHECK(sum(sink->finished()->served) == sink->finished()->usage.completion_tokens);
    CHECK(house.ended.size() == 1);
    CHECK(house.ended[0].outcome == "cancelled");
    CHECK(house.all_free());
}

TEST_CASE("a deadline that passes while an answer waits keeps the answer", "[engine][revise]") {
    EngineHouse house;
    auto job = revised_job(house, "a", greedy(2));
    job->deadline = house.time + std::chrono::milliseconds(50);
    const auto sink = house.add(std::move(job));
    REQUIRE(house.run());
    house.time += std::chrono::seconds(1);
    const auto other = house.add(2, "a", greedy(1));
    REQUIRE(house.run());
    CHECK(sink->ended_once());
    CHECK(sink->text() == "bc");
}

TEST_CASE("a step that fails spares the answers that wait", "[engine][revise]") {
    EngineHouse house;
    const auto sink = house.add(revised_job(house, "a", greedy(2)));
    REQUIRE(house.run());
    house.knobs->throw_at_forward = 0;
    const auto other = house.add(2, "a", greedy(1));
    house.step();
    CHECK(other->failure());
    CHECK(sink->events.size() > 1);
    CHECK_FALSE(sink->failure());
    house.engine->stop_waiting(RequestId{1});
    REQUIRE(house.run());
    CHECK(sink->finished());
}

TEST_CASE("a second pass that is preempted comes to the same answer", "[engine][revise]") {
    const auto answers = [](int blocks) {
        EngineHouse house({.blocks = blocks});
        SamplingParams params = greedy(40);
        params.temperature = 1;
        params.seed = 9;
        house.knobs->peak = 1;
        const auto sink = house.add(revised_job(house, "abcd", params));
        for (int i = 0; i < 3; ++i) house.step();
        CHECK(house.engine->switch_modules(RequestId{1}, {house.module("legal")}));
        for (int i = 0; i < 5; ++i) house.step();
        auto other = house.job(2, std::string(40, 'x'), params);
        other->priority = 5;
        house.add(std::move(other));
        CHECK(house.run());
        return std::pair(sink->ids(), house.preempted);
    };
    const auto roomy = answers(64);
    const auto tight = answers(6);
    CHECK(roomy.second == 0);
    CHECK(tight.second > 0);
    CHECK(roomy.first == tight.first);
}

TEST_CASE("a golden model's second answer has the bits of the module's warm one", "[engine][golden][revise]") {
    using Bits = std::vector<std::pair<TokenId, float>>;
    const auto bits_of = [](const RecordingSink& sink) {
        Bits bits;
        for (const TokenEvent& token : sink.tokens())
            for (const ScoredToken& one : token.scores->top) bits.emplace_back(one.id, one.logprob);
        return bits;
    };
    for (const char* adapter : {"lora_r4", "prefix5"}) {
        INFO(adapter);
        const std::vector<TokenId> prompt = golden::read_case("llama_gqa_tied", adapter).prompts[2].tokens;
        GoldenHouse warm("llama_gqa_tied");
        const auto expected = warm.add(prompt, GoldenHouse::greedy(24), {warm.module(adapter)});
        REQUIRE(warm.run());
        const auto base = warm.add(prompt, GoldenHouse::greedy(24));
        REQUIRE(warm.run());
        CHECK(bits_of(*base) != bits_of(*expected));
        for (const int steps : {1, 9, 100}) {
            GoldenHouse house("llama_gqa_tied");
            auto job = std::make_unique<Job>();
            job->id = RequestId{house.next_id++};
            job->prompt = prompt;
            job->sampling = GoldenHouse::greedy(24);
            job->revise = true;
            const auto sink = std::make_shared<RecordingSink>();
            job->sink = sink;
            house.engine->add(std::move(job));
            const auto neighbour = house.add(prompt, GoldenHouse::greedy(24));
            for (int i = 0; i < steps && house.engine->has_work(); ++i) house.engine->step();
            REQUIRE(house.engine->switch_modules(RequestId{1}, {house.module(adapter)}));
            REQUIRE(house.run());
            CHECK(bits_of(*sink) == bits_of(*expected));
            CHECK(bits_of(*neighbour) == bits_of(*base));
            CHECK(sum(sink->finished()->served) == sink->finished()->usage.completion_tokens);
            CHECK(sink->finished()->served.back().tokens == 24);
        }
    }
}

TEST_CASE("modules that act together on the same places say so in the record", "[engine][golden][overlaps]") {
    GoldenHouse house("llama_gqa_tied");
    const auto overlaps = [&](std::vector<JobModule> modules) {
        const auto sink = house.add({5, 6, 7}, GoldenHouse::greedy(1), std::move(modules));
        REQUIRE(house.run());
        return sink->finished()->overlaps;
    };
    CHECK(overlaps({house.module("lora_r6_qv")}).empty());
    const auto both = overlaps({house.module("lora_r4"), house.module("lora_r6_qv")});
    REQUIRE_FALSE(both.empty());
    CHECK(both[0].modules == std::vector<std::string>{"lora_r4", "lora_r6_qv"});
    CHECK(std::ranges::count(both[0].projections, "q_proj") == 1);
    CHECK(overlaps({house.module("lora_r4"), house.module("lora_r6_qv", 0.0)}).empty());
}
