// Cached keys and values change when an answer comes, never what it says: whatever was asked before, each answer has
// the bits that it has in a house without a cache.

#include "engine/module/module_loader.hpp"
#include "support/engine_house.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace attune;

namespace {

const std::string kModel = "llama_gqa_tied";

/// Tokens and the bits of their log-probabilities.
using Bits = std::vector<std::pair<TokenId, float>>;

Bits bits_of(const RecordingSink& sink, int choice = 0) {
    Bits bits;
    for (const TokenEvent& token : sink.tokens(choice))
        for (const ScoredToken& one : token.scores->top) bits.emplace_back(one.id, one.logprob);
    return bits;
}

int cached(const RecordingSink& sink) { return sink.finished()->usage.cached_tokens; }

/// A prompt of `count` tokens out of the reference's.
std::vector<TokenId> long_prompt(const std::string& model, std::size_t count, unsigned seed = 3) {
    std::mt19937 random(seed);
    std::vector<TokenId> all;
    for (const golden::Prompt& prompt : golden::read_case(model, "base").prompts)
        all.insert(all.end(), prompt.tokens.begin(), prompt.tokens.end());
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = all[random() % all.size()];
    return tokens;
}

ModulePtr load(GoldenHouse& house, const std::string& name, const std::string& folder) {
    ModuleLimits limits;
    limits.base_values = house.engine->base_values();
    auto loaded = load_module(name, golden::adapter_folder(house.model, folder), house.engine->shape(), limits);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
}

std::shared_ptr<RecordingSink> ask(GoldenHouse& house, const std::vector<TokenId>& prompt,
                                   std::vector<JobModule> modules = {}, int max_tokens = 6) {
    const auto sink = house.add(prompt, GoldenHouse::greedy(max_tokens), std::move(modules));
    REQUIRE(house.run());
    return sink;
}

/// What `name` (or the base) answers in a house that has no cache.
Bits cold(const std::string& model, const std::vector<TokenId>& prompt, const std::string& name, double weight = 1.0,
          int max_tokens = 6) {
    GoldenHouse house(model, {.prefix_cache = false});
    std::vector<JobModule> modules;
    if (name != "base") modules.push_back(house.module(name, weight));
    const auto sink = ask(house, prompt, std::move(modules), max_tokens);
    CHECK(cached(*sink) == 0);
    CHECK(house.engine->stats().cached_blocks == 0);
    return bits_of(*sink);
}

}  // namespace

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

TEST_CASE("A1: two modules that had one name one after the other do not share blocks", "[engine][golden][prefix][A1]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel);
    const JobModule before = house.install(load(house, "a", "lora_r4"));
    CHECK(bits_of(*ask(house, prompt, {before})) == cold(kModel, prompt, "lora_r4"));
    house.engine->remove(before.slot);
    const JobModule after = house.install(load(house, "a", "lora_r4_b"));
    CHECK(after.slot == before.slot);
    const auto answer = ask(house, prompt, {after});
    CHECK(cached(*answer) == 0);
    CHECK(bits_of(*answer) == cold(kModel, prompt, "lora_r4_b"));
}

TEST_CASE("A1: one content under two names shares its blocks", "[engine][golden][prefix][A1]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel);
    const JobModule before = house.install(load(house, "a", "lora_r4"));
    ask(house, prompt, {before});
    house.engine->remove(before.slot);
    CHECK(cached(*ask(house, prompt, {house.install(load(house, "b", "lora_r4"))})) == 48);
}

TEST_CASE("A3: one prompt under A, B, A and then half of A gives each its cold answer",
          "[engine][golden][prefix][A3]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel);
    const std::vector<std::tuple<std::string, double, int>> turns{
        {"lora_r4", 1.0, 0},  {"lora_r4_b", 1.0, 0}, {"lora_r4", 1.0, 48}, {"lora_r4", 0.5, 0},
        {"lora_r4", -1.0, 0}, {"lora_r4", 0.5, 48},  {"lora_r4", 1.0, 48}};
    for (const auto& [name, weight, hit] : turns) {
        INFO(name << " * " << weight);
        const auto answer = ask(house, prompt, {house.module(name, weight)});
        CHECK(cached(*answer) == hit);
        CHECK(bits_of(*answer) == cold(kModel, prompt, name, weight));
    }
}

TEST_CASE("A4: base and module have separate blocks, in both orders", "[engine][golden][prefix][A4]") {
    const auto prompt = long_prompt(kModel, 50);
    const std::map<std::string, Bits> expected{{"base", cold(kModel, prompt, "base")},
                                               {"lora_r4", cold(kModel, prompt, "lora_r4")}};
    CHECK(expected.at("base") != expected.at("lora_r4"));
    for (const auto& order : std::vector<std::vector<std::string>>{{"base", "lora_r4"}, {"lora_r4", "base"}}) {
        GoldenHouse house(kModel);
        for (const int hit : {0, 48}) {
            for (const std::string& name : order) {
                const auto answer = ask(house, prompt, house.modules_of(name));
                CHECK(cached(*answer) == hit);
                CHECK(bits_of(*answer) == expected.at(name));
            }
        }
    }
}

TEST_CASE("A16: modules that are evicted and come back answer as before, with their blocks and without",
          "[engine][golden][prefix][A16]") {
    const auto prompt = long_prompt(kModel, 50);
    for (const int blocks : {0, 5}) {
        GoldenHouse house(kModel, {.blocks = blocks});
        std::map<std::string, Bits> first;
        std::vector<std::string> resident;
        for (const char* const name : {"lora_r4", "lora_r4_b", "rslora_patterns", "lora_r4", "lora_r4_b",
                                       "rslora_patterns", "base", "lora_r4"}) {
            if (resident.size() == 2 && !house.slots.contains(name)) {
                house.engine->remove(house.slots.at(resident.front()).slot);
                house.slots.erase(resident.front());
                resident.erase(resident.begin());
            }
            if (std::string(name) != "base" && !house.slots.contains(name)) resident.emplace_back(name);
            const auto answer = ask(house, prompt, house.modules_of(name));
            const auto [known, is_first] = first.emplace(name, bits_of(*answer));
            CHECK(bits_of(*answer) == known->second);
            CHECK(known->second == cold(kModel, prompt, name));
            // Five blocks hold one context, so each pushes the one before out.
            CHECK(cached(*answer) == (is_first || blocks > 0 ? 0 : 48));
        }
    }
}

TEST_CASE("an aLoRA takes the base's blocks up to its invocation, and the base takes the aLoRA's",
          "[engine][golden][prefix]") {
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model);
        const std::vector<TokenId> invocation = load(house, "alora", "alora")->invocation;
        REQUIRE_FALSE(invocation.empty());
        for (const std::size_t before : {40U, 48U}) {
            INFO(model << " invoked at " << before);
            auto prompt = long_prompt(model, before, static_cast<unsigned>(before));
            prompt.insert(prompt.end(), invocation.begin(), invocation.end());
            const auto rest = long_prompt(model, 70 - prompt.size(), 8);
            prompt.insert(prompt.end(), rest.begin(), rest.end());
            const Bits expected = cold(model, prompt, "alora");
            CHECK(expected != cold(model, prompt, "base"));

            CHECK(cached(*ask(house, prompt)) == 0);
            const auto shared = ask(house, prompt, {house.module("alora")});
            CHECK(cached(*shared) == static_cast<int>(before / 16 * 16));
            CHECK(bits_of(*shared) == expected);
            const auto again = ask(house, prompt, {house.module("alora")});
            CHECK(cached(*again) == 64);
            CHECK(bits_of(*again) == expected);

            GoldenHouse other(model);
            CHECK(bits_of(*ask(other, prompt, {other.module("alora")})) == expected);
            const auto base = ask(other, prompt);
            CHECK(cached(*base) == static_cast<int>(before / 16 * 16));
            CHECK(bits_of(*base) == cold(model, prompt, "base"));
        }
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
        GoldenHouse house(model, {.step_tokens = 24, .blocks = 14});
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

TEST_CASE("a salt keeps prompts apart, and so does an owner", "[engine][golden][prefix]") {
    const auto prompt = long_prompt(kModel, 50);
    GoldenHouse house(kModel);
    const auto asked = [&](const std::string& salt, std::vector<std::string> owners = {}) {
        JobModule module = house.module("lora_r4");
        module.owners = std::move(owners);
        const auto sink = house.add(prompt, GoldenHouse::greedy(2), {module}, Combine::sequence, salt);
        REQUIRE(house.run());
        return cached(*sink);
    };
    CHECK(asked("") == 0);
    CHECK(asked("x") == 0);
    CHECK(asked("", {"ann"}) == 0);
    CHECK(asked("", {"bob"}) == 0);
    CHECK(asked("ann") == 0);
    CHECK(asked("x") == 48);
    CHECK(asked("", {"ann"}) == 48);
    CHECK(asked("") == 48);
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
