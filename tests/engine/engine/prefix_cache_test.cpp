// Cached keys and values change when an answer comes, never what it says: whatever was asked before, each answer has
// the bits that it has in a house without a cache.

#include "prefix_house.hpp"
#include "support/engine_house.hpp"

using namespace attune;

TEST_CASE("a prompt asked again is read from the cache, at any chunking, to the bit", "[engine][golden][prefix]") {
    for (const std::string& model : golden::models()) {
        const auto prompt = long_prompt(model, 70);
        const Bits expected = cold(model, prompt, "base", 1, 24);
        for (const int step_tokens : {512, 7, 33}) {
            INFO(model << " in steps of " << step_tokens);
            GoldenHouse house(model, {.step_tokens = step_tokens});
            const auto first = ask(house, prompt, {}, 24);
            const auto second = ask(house, prompt, {}, 24);
            CHECK(cached(*first) == 0);
            CHECK(cached(*second) == 64);
            CHECK(bits_of(*first) == expected);
            CHECK(bits_of(*second) == expected);
            // Another end: the last block they share is the third.
            auto other = prompt;
            other[50] = other[50] == 5 ? 6 : 5;
            const auto third = ask(house, other, {}, 24);
            CHECK(cached(*third) == 48);
            CHECK(bits_of(*third) == cold(model, other, "base", 1, 24));
            CHECK(house.all_free());
        }
    }
}

TEST_CASE("in bfloat16 a hit has the bits of the whole prompt, too", "[engine][golden][prefix]") {
    for (const std::string& model : golden::models()) {
        const auto prompt = long_prompt(model, 70);
        for (const char* const name : {"base", "lora_r4", "prefix5"}) {
            INFO(model << " " << name);
            GoldenHouse plain(model, {.prefix_cache = false, .dtype = "bf16"});
            const Bits expected = bits_of(*ask(plain, prompt, plain.modules_of(name), 24));
            GoldenHouse house(model, {.step_tokens = 13, .dtype = "bf16"});
            for (const bool hit : {false, true}) {
                const auto sink = ask(house, prompt, house.modules_of(name), 24);
                CHECK(bits_of(*sink) == expected);
                CHECK((cached(*sink) > 0) == hit);
            }
        }
    }
}

TEST_CASE("a module of every kind has the bits it has without a cache", "[engine][golden][prefix]") {
    for (const std::string& model : golden::models()) {
        const auto prompt = long_prompt(model, 40);
        GoldenHouse house(model);
        ask(house, prompt);  // the base's blocks, which no module may take
        int seen = 0;
        for (const auto& entry : std::filesystem::directory_iterator(golden::root() / "adapters" / model)) {
            const std::string name = entry.path().filename();
            INFO(model << " " << name);
            const Bits expected = cold(model, prompt, name);
            const bool is_called = load(house, name, name)->invocation.empty();
            for (int round = 0; round < 2; ++round) {
                const auto sink = ask(house, prompt, {house.module(name)});
                CHECK(bits_of(*sink) == expected);
                // An aLoRA that is not invoked is the base.
                CHECK((cached(*sink) > 0) == (round > 0 || !is_called));
            }
            ++seen;
        }
        CHECK(seen > 10);
        house.clear();
        CHECK(house.all_free());
    }
}

TEST_CASE("the next turn of a chat begins behind the last answer", "[engine][golden][prefix]") {
    GoldenHouse house(kModel);
    auto prompt = long_prompt(kModel, 20);
    const auto first = ask(house, prompt, {}, 30);
    const auto answer = first->ids();
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    const auto more = long_prompt(kModel, 10, 9);
    prompt.insert(prompt.end(), more.begin(), more.end());
    const auto second = ask(house, prompt, {}, 8);
    CHECK(cached(*second) == 48);
    CHECK(bits_of(*second) == cold(kModel, prompt, "base", 1, 8));
}

TEST_CASE("choices of a prompt share it with each other and with the next request", "[engine][golden][prefix]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel, {.step_tokens = 16});
    SamplingParams params = GoldenHouse::greedy(20);
    params.temperature = 1;
    params.seed = 5;
    params.n = 3;
    const auto first = house.add(prompt, params);
    REQUIRE(house.run());
    const auto second = house.add(prompt, params);
    REQUIRE(house.run());
    CHECK(cached(*second) == 48);
    GoldenHouse fresh(kModel, {.step_tokens = 16, .prefix_cache = false});
    const auto expected = fresh.add(prompt, params);
    REQUIRE(fresh.run());
    for (int choice = 0; choice < 3; ++choice) {
        CHECK(bits_of(*first, choice) == bits_of(*expected, choice));
        CHECK(bits_of(*second, choice) == bits_of(*expected, choice));
    }
    CHECK(house.all_free());
}

TEST_CASE("an upgrade finds the module's blocks, and its answer is the one without a cache",
          "[engine][golden][prefix]") {
    const auto prompt = long_prompt(kModel, 50);
    const auto upgraded = [&](bool prefix_cache) {
        GoldenHouse house(kModel, {.prefix_cache = prefix_cache});
        const JobModule module = house.module("lora_r4");
        ask(house, prompt, {module});
        const auto sink = house.add(prompt, GoldenHouse::greedy(20));
        while (sink->tokens().size() < 4) house.engine->step();
        REQUIRE(house.engine->switch_modules(RequestId{2}, {module}));
        CHECK(house.engine->step().rows == (prefix_cache ? 54 - 48 : 54));
        REQUIRE(house.run());
        CHECK(cached(*sink) == 0);  // the base read the prompt for the first token
        return bits_of(*sink);
    };
    CHECK(upgraded(true) == upgraded(false));
}

TEST_CASE("a crowd in a small pool has the bits that each has alone, whatever is evicted", "[engine][golden][prefix]") {
    for (const std::string& model : {kModel, std::string("mistral_swa")}) {
        const std::vector<std::string> names{"base", "lora_r4", "prefix5", "prompt6", "alora"};
        std::vector<std::vector<TokenId>> prompts;
        for (const std::size_t cut : {20U, 33U, 48U}) {
            auto prompt = long_prompt(model, 60);
            prompt.resize(cut);
            const auto end = long_prompt(model, 4, static_cast<unsigned>(cut));
            prompt.insert(prompt.end(), end.begin(), end.end());
            prompts.push_back(std::move(prompt));
        }
        std::map<std::pair<std::string, std::size_t>, Bits> expected;
        for (const std::string& name : names)
            for (std::size_t i = 0; i < prompts.size(); ++i) expected[{name, i}] = cold(model, prompts[i], name, 1, 16);
        GoldenHouse house(model, {.step_tokens = 24, .blocks = 11});
        std::mt19937 random(21);
        int hits = 0;
        std::vector<std::tuple<std::string, std::size_t, std::shared_ptr<RecordingSink>>> asked;
        for (int i = 0; i < 40; ++i) {
            const std::string& name = names[random() % names.size()];
            const std::size_t prompt = random() % prompts.size();
            asked.emplace_back(name, prompt,
                               house.add(prompts[prompt], GoldenHouse::greedy(16), house.modules_of(name)));
            for (auto steps = random() % 6; steps > 0; --steps) house.preempted += house.engine->step().preempted;
        }
        REQUIRE(house.run());
        for (const auto& [name, prompt, sink] : asked) {
            INFO(model << " " << name << ", prompt " << prompt);
            CHECK(bits_of(*sink) == expected.at({name, prompt}));
            hits += cached(*sink) > 0 ? 1 : 0;
        }
        CHECK(hits > 5);
        CHECK(house.preempted > 0);
        house.clear();
        CHECK(house.all_free());
    }
}

TEST_CASE("a request that scores its prompt takes nothing from the cache and fills it", "[engine][golden][prefix]") {
    const auto prompt = long_prompt(kModel, 50);
    for (const bool echo : {false, true}) {
        for (const int max_tokens : {0, 3}) {
            INFO("echo " << echo << ", max_tokens " << max_tokens);
            GoldenHouse house(kModel);
            SamplingParams params = GoldenHouse::greedy(max_tokens);
            params.echo = echo;
            if (!echo) params.prompt_logprobs = 2;
            for (int round = 0; round < 2; ++round) {
                const auto sink = house.add(prompt, params);
                REQUIRE(house.run());
                CHECK(cached(*sink) == 0);
                REQUIRE(sink->one<PromptEvent>());
                CHECK(sink->one<PromptEvent>()->scores.size() == prompt.size());
            }
            CHECK(cached(*ask(house, prompt)) == 48);
        }
    }
}

TEST_CASE("after the cache is dropped nothing of before is found, not even what was running",
          "[engine][golden][prefix]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel);
    ask(house, prompt);
    const auto running = house.add(prompt, GoldenHouse::greedy(20));
    for (int i = 0; i < 3; ++i) house.engine->step();
    CHECK(house.engine->stats().cached_blocks > 0);
    house.engine->drop_prefix_cache();
    CHECK(house.engine->stats().cached_blocks == 0);
    REQUIRE(house.run());
    CHECK(bits_of(*running) == cold(kModel, prompt, "base", 1, 20));
    CHECK(house.engine->stats().cached_blocks == 0);
    CHECK(house.all_free());
    CHECK(cached(*ask(house, prompt)) == 0);
    CHECK(cached(*ask(house, prompt)) == 48);

    // Also of a prompt that was half read and in nobody's cache yet.
    GoldenHouse slow(kModel, {.step_tokens = 20});
    slow.add(prompt, GoldenHouse::greedy(3));
    slow.engine->step();
    slow.engine->drop_prefix_cache();
    REQUIRE(slow.run());
    CHECK(slow.engine->stats().cached_blocks == 0);
}

TEST_CASE("blocks of a request that ended non_finite are not shared", "[engine][prefix]") {
    EngineHouse house;
    house.knobs->not_finite_after = 'z';
    const std::string prompt(40, 'm');
    const auto bad = house.add(1, prompt, EngineHouse::greedy(30));
    REQUIRE(house.run());
    REQUIRE(bad->failure());
    CHECK(bad->failure()->code == Errc::non_finite);
    CHECK(house.engine->stats().cached_blocks == 0);
    const auto next = house.add(2, prompt, EngineHouse::greedy(3));
    REQUIRE(house.run());
    CHECK(next->finished()->usage.cached_tokens == 0);
    CHECK(house.engine->stats().cached_blocks == 2);

    // What another request holds at that time was finite for it.
    const auto good = house.add(3, prompt, EngineHouse::greedy(9));
    house.step();
    CHECK(house.add(4, prompt + "z", EngineHouse::greedy(9)));
    house.step();
    CHECK(house.engine->stats().cached_blocks == 2);
    REQUIRE(house.run());
    CHECK(good->finished()->usage.cached_tokens == 32);
    CHECK(house.all_free());
}

TEST_CASE("steps tell how many prompt tokens were looked up and found", "[engine][prefix]") {
    EngineHouse house;
    const std::string prompt(40, 'a');
    const auto sums = [&](SamplingParams params) {
        house.add(static_cast<int>(house.ended.size()) + 1, prompt, std::move(params));
        std::pair<int, int> sum;
        while (house.engine->has_work()) {
            const StepReport report = house.step();
            sum.first += report.prefix_queries;
            sum.second += report.prefix_hits;
        }
        return sum;
    };
    CHECK(sums(EngineHouse::greedy(3)) == std::pair(40, 0));
    CHECK(sums(EngineHouse::greedy(3)) == std::pair(40, 32));
    SamplingParams scoring = EngineHouse::greedy(3);
    scoring.prompt_logprobs = 1;
    CHECK(sums(scoring) == std::pair(0, 0));
}
