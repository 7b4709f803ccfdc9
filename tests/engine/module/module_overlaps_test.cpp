#include "engine/module/module_overlaps.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

Module lora(const std::vector<int>& layers, const std::vector<Projection>& projections) {
    Module module;
    for (const int layer : layers)
        for (const Projection projection : projections) module.pairs.push_back({layer, projection, 1, 1.0F, {1}, {1}});
    return module;
}

std::vector<std::string> words(const std::vector<NamedModule>& modules) {
    std::vector<std::string> out;
    for (const ModuleOverlap& overlap : module_overlaps(modules)) out.push_back(overlap_text(overlap));
    return out;
}

using Words = std::vector<std::string>;
using P = Projection;

TEST_CASE("modules that share no place have no overlaps", "[engine][module][overlaps]") {
    const Module a = lora({0, 1}, {P::q});
    const Module b = lora({0, 1}, {P::v});
    const Module c = lora({2}, {P::q});
    CHECK(words({{"a", &a}, {"b", &b}, {"c", &c}}).empty());
    CHECK(words({{"a", &a}}).empty());
    CHECK(words({}).empty());
}

TEST_CASE("shared places are told in ranges of layers, projections of the same layers together",
          "[engine][module][overlaps]") {
    const Module a = lora({0, 1, 2, 5, 7, 8}, {P::q, P::v});
    const Module b = lora({0, 1, 2, 5, 7, 8}, {P::v, P::q});
    CHECK(words({{"a", &a}, {"b", &b}}) == Words{"a, b: q_proj, v_proj of layers 0-2,5,7-8"});
    const Module c = lora({1}, {P::q});
    CHECK(words({{"a", &a}, {"c", &c}}) == Words{"a, c: q_proj of layer 1"});
}

TEST_CASE("three modules are told by who meets where", "[engine][module][overlaps]") {
    const Module a = lora({0, 1, 2}, {P::q});
    const Module b = lora({1, 2, 3}, {P::q, P::down});
    const Module c = lora({2, 3}, {P::q, P::down});
    CHECK(words({{"a", &a}, {"b", &b}, {"c", &c}}) == Words{"a, b, c: q_proj of layer 2", "a, b: q_proj of layer 1",
                                                            "b, c: down_proj of layers 2-3",
                                                            "b, c: q_proj of layer 3"});
}

TEST_CASE("every kind of change counts, whatever the other's kind", "[engine][module][overlaps]") {
    Module a = lora({0}, {P::q});
    a.pairs.push_back({0, P::head, 1, 1.0F, {1}, {1}});
    a.states.resize(1);
    a.states[0].layer = 1;
    a.embedding = EmbeddingTerm{};
    a.prompt = SoftPrompt{2, {}};
    a.norms.push_back({0, NormSite::mlp, {}});
    a.norms.push_back({0, NormSite::last, {}});
    Module b;
    b.outputs.push_back({0, P::q, {1}, false, {}});
    b.inputs.push_back({1, P::down, {1}});
    b.states = a.states;
    b.head_rows = HeadRows{};
    b.embedding = EmbeddingTerm{};
    b.prefix = PrefixSegment{3, {}, {}};
    b.norms.push_back({0, NormSite::mlp, {}});
    b.norms.push_back({0, NormSite::last, {}});
    const auto overlaps = module_overlaps(std::vector<NamedModule>{{"a", &a}, {"b", &b}});
    REQUIRE(overlaps.size() == 3);
    CHECK(overlaps[0] == ModuleOverlap{{"a", "b"}, "0", {"q_proj", "post_attention_layernorm"}});
    CHECK(overlaps[1] == ModuleOverlap{{"a", "b"}, "1", {"state"}});
    CHECK(overlaps[2] == ModuleOverlap{{"a", "b"}, "", {"embed_tokens", "virtual_tokens", "norm", "lm_head"}});
    CHECK(overlap_text(overlaps[2]) == "a, b: embed_tokens, virtual_tokens, norm, lm_head");
}

}  // namespace
}  // namespace attune
