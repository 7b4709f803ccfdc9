#include "engine/module/module_loader.hpp"

#include "engine/module/module_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

using test::ModuleFolder;
using test::small_base;

ModulePtr load(const ModuleFolder& folder, const ModuleLimits& limits = {}) {
    auto module = load_module("m", folder.path(), small_base(), limits);
    if (!module) FAIL(module.error().message);
    return *std::move(module);
}

const LowRankPair& pair_of(const Module& module, int layer, Projection projection) {
    const auto at = std::find_if(module.pairs.begin(), module.pairs.end(), [&](const LowRankPair& pair) {
        return pair.layer == layer && pair.projection == projection;
    });
    REQUIRE(at != module.pairs.end());
    return *at;
}

TEST_CASE_METHOD(ModuleFolder, "a LoRA's values and scale arrive as the file has them", "[engine][module]") {
    write();
    const ModulePtr module = load(*this);
    CHECK(module->id.name == "m");
    CHECK(module->id.generation.size() == 64);
    CHECK(module->kind == "lora");
    CHECK(module->max_rank == 4);
    CHECK(module->base_match == "shape");
    CHECK_FALSE(module->unverified);
    REQUIRE(module->pairs.size() == 4);
    const LowRankPair& pair = pair_of(*module, 1, Projection::down);
    CHECK(pair.rank == 4);
    CHECK(pair.scale == 2.0F);
    CHECK(pair.a == tensors["base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"].values);
    CHECK(pair.b == tensors["base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"].values);
}

TEST_CASE_METHOD(ModuleFolder, "pairs come in ascending order of layer and projection", "[engine][module]") {
    config["target_modules"] = "all-linear";
    for (const int layer : {1, 0})
        for (int i = kProjections - 1; i >= 0; --i) add_pair(layer, static_cast<Projection>(i), 4);
    write();
    const ModulePtr module = load(*this);
    REQUIRE(module->pairs.size() == 2 * kProjections);
    for (std::size_t i = 0; i < module->pairs.size(); ++i) {
        CHECK(module->pairs[i].layer == static_cast<int>(i) / kProjections);
        CHECK(static_cast<int>(module->pairs[i].projection) == static_cast<int>(i) % kProjections);
    }
}

TEST_CASE_METHOD(ModuleFolder, "half floats give the same values as full ones", "[engine][module]") {
    write();
    const ModulePtr full = load(*this);
    for (const char* type : {"F16", "BF16"}) {
        for (auto& [name, tensor] : tensors) tensor.type_name = type;
        write();
        const ModulePtr half = load(*this);
        CAPTURE(type);
        CHECK(half->id.generation != full->id.generation);
        for (std::size_t i = 0; i < full->pairs.size(); ++i) {
            CHECK(half->pairs[i].a == full->pairs[i].a);
            CHECK(half->pairs[i].b == full->pairs[i].b);
        }
    }
}

TEST_CASE_METHOD(ModuleFolder, "every layer has its own rank and alpha", "[engine][module][B7]") {
    // r = 4, alpha = 8 overall: scale 2. down_proj of layer 1 has rank 6, alpha 24: scale 4.
    add_pair(1, Projection::down, 6);
    config["rank_pattern"] = {{"layers\\.1\\.mlp\\.down_proj", 6}};
    config["alpha_pattern"] = {{"layers.1.mlp.down_proj", 24}};
    write();
    const ModulePtr module = load(*this);
    CHECK(pair_of(*module, 1, Projection::down).scale == 4.0F);
    CHECK(pair_of(*module, 0, Projection::down).scale == 2.0F);
    CHECK(pair_of(*module, 1, Projection::q).scale == 2.0F);
    CHECK(module->max_rank == 6);
}

TEST_CASE_METHOD(ModuleFolder, "rsLoRA divides by the root of the true rank", "[engine][module]") {
    config["use_rslora"] = true;
    add_pair(1, Projection::down, 3);
    config["rank_pattern"] = {{"layers.1.mlp.down_proj", 3}};
    write();
    const ModulePtr module = load(*this);
    CHECK(pair_of(*module, 0, Projection::q).scale == 4.0F);
    CHECK(pair_of(*module, 1, Projection::down).scale == static_cast<float>(8 / std::sqrt(3.0)));
}

TEST_CASE_METHOD(ModuleFolder, "text modules of multimodal models keep their effect under both prefixes",
                 "[engine][module][B3]") {
    write();
    const ModulePtr plain = load(*this);
    for (const char* prefix : {"language_model.model.", "model.language_model."}) {
        tensors.clear();
        for (const int layer : {0, 1}) {
            add_pair(layer, Projection::q, 4, prefix);
            add_pair(layer, Projection::down, 4, prefix);
        }
        config["target_modules"] = "^(language_model|model).*(q_proj|down_proj)$";
        write();
        CAPTURE(prefix);
        const ModulePtr prefixed = load(*this);
        REQUIRE(prefixed->pairs.size() == plain->pairs.size());
        for (std::size_t i = 0; i < plain->pairs.size(); ++i) CHECK(prefixed->pairs[i].a == plain->pairs[i].a);
    }
}

TEST_CASE_METHOD(ModuleFolder, "layers_to_transform and exclude_modules leave layers without tensors",
                 "[engine][module]") {
    tensors.clear();
    add_pair(1, Projection::q, 4);
    config["layers_to_transform"] = {1};
    config["exclude_modules"] = {"down_proj"};
    write();
    CHECK(load(*this)->pairs.size() == 1);
}

TEST_CASE_METHOD(ModuleFolder, "host bytes are what the vectors hold, and no more than the look promised",
                 "[engine][module]") {
    write();
    const auto header = inspect_module(path(), small_base(), {});
    REQUIRE(header);
    const ModulePtr module = load(*this);
    std::uint64_t bytes = module->pairs.capacity() * sizeof(LowRankPair);
    for (const LowRankPair& pair : module->pairs) bytes += 4 * (pair.a.capacity() + pair.b.capacity());
    CHECK(module->host_bytes == bytes);
    CHECK(header->parsed_bytes >= bytes);
    CHECK(header->parsed_bytes < bytes + 1024);
}

TEST_CASE_METHOD(ModuleFolder, "a look tells kind, ranks, targets and sizes without reading weights",
                 "[engine][module]") {
    add_pair(1, Projection::down, 6);
    config["rank_pattern"] = {{"layers.1.mlp.down_proj", 6}};
    // The look must not read values: this one is caught by the load only.
    tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].values[5] = INFINITY;
    write();
    const auto header = inspect_module(path(), small_base(), {});
    REQUIRE(header);
    CHECK(header->kind == "lora");
    CHECK(header->max_rank == 6);
    CHECK(header->targets == std::vector<std::string>{"q_proj", "down_proj"});
    CHECK(header->base_match == "shape");
    CHECK(header->file_bytes == std::filesystem::file_size(path() / "adapter_config.json") +
                                    std::filesystem::file_size(path() / "adapter_model.safetensors"));
    CHECK_FALSE(load_module("m", path(), small_base(), {}));
}

TEST_CASE_METHOD(ModuleFolder, "files that have no effect on a result do not matter", "[engine][module]") {
    write();
    const std::string generation = load(*this)->id.generation;
    write_text("README.md", "# legal");
    write_text("training_args.bin", "pickle");
    write_text("adapter_model.bin", "pickle");
    write_text("checkpoint-10/adapter_config.json", "{");
    CHECK(load(*this)->id.generation == generation);
}

}  // namespace
}  // namespace attune
