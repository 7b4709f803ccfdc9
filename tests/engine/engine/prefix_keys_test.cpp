// Whose cached keys and values a request may take: an answer has the bits that it has in a house without a cache,
// whatever was asked before under other modules, weights, names and salts.

#include "prefix_house.hpp"

using namespace attune;

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
