#pragma once

// What the tests of the prefix cache share: prompts of several blocks on a tiny model, and the answers of a house that
// has no cache.

#include "engine/module/module_loader.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace attune {

inline const std::string kModel = "llama_gqa_tied";

/// Tokens and the bits of their log-probabilities.
using Bits = std::vector<std::pair<TokenId, float>>;

inline Bits bits_of(const RecordingSink& sink, int choice = 0) {
    Bits bits;
    for (const TokenEvent& token : sink.tokens(choice))
        for (const ScoredToken& one : token.scores->top) bits.emplace_back(one.id, one.logprob);
    return bits;
}

inline int cached(const RecordingSink& sink) { return sink.finished()->usage.cached_tokens; }

/// A prompt of `count` tokens out of the reference's.
inline std::vector<TokenId> long_prompt(const std::string& model, std::size_t count, unsigned seed = 3) {
    std::mt19937 random(seed);
    std::vector<TokenId> all;
    for (const golden::Prompt& prompt : golden::read_case(model, "base").prompts)
        all.insert(all.end(), prompt.tokens.begin(), prompt.tokens.end());
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = all[random() % all.size()];
    return tokens;
}

inline ModulePtr load(GoldenHouse& house, const std::string& name, const std::string& folder) {
    ModuleLimits limits;
    limits.base_values = house.engine->base_values();
    auto loaded = load_module(name, golden::adapter_folder(house.model, folder), house.engine->shape(), limits);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
}

inline std::shared_ptr<RecordingSink> ask(GoldenHouse& house, const std::vector<TokenId>& prompt,
                                          std::vector<JobModule> modules = {}, int max_tokens = 6) {
    const auto sink = house.add(prompt, GoldenHouse::greedy(max_tokens), std::move(modules));
    REQUIRE(house.run());
    return sink;
}

/// What `name` (or the base) answers in a house that has no cache.
inline Bits cold(const std::string& model, const std::vector<TokenId>& prompt, const std::string& name,
                 double weight = 1.0, int max_tokens = 6) {
    GoldenHouse house(model, {.prefix_cache = false});
    std::vector<JobModule> modules;
    if (name != "base") modules.push_back(house.module(name, weight));
    const auto sink = ask(house, prompt, std::move(modules), max_tokens);
    CHECK(cached(*sink) == 0);
    CHECK(house.engine->stats().cached_blocks == 0);
    return bits_of(*sink);
}

}  // namespace attune
