#include "engine/files/gguf_bytes.hpp"
#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <cmath>

namespace attune {
namespace {

using test::ModuleFolder;

std::filesystem::path adapters_root() { return std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_adapters"; }

ModelShape base_of(const std::string& model) {
    auto shape = read_model_shape(golden::model_folder(model));
    if (!shape) FAIL(shape.error().message);
    return *std::move(shape);
}

ModulePtr load(const std::filesystem::path& path, const ModelShape& base) {
    auto module = load_module("m", path, base, {});
    if (!module) FAIL(module.error().message);
    return *std::move(module);
}

TEST_CASE("a LoRA in GGUF is the PEFT adapter it was converted from", "[engine][module][gguf]") {
    for (const auto& [model, adapter, form, tolerance] : {std::tuple{"llama_gqa_tied", "lora_r4", "f32", 0.0F},
                                                          {"llama_gqa_tied", "alora", "f32", 0.0F},
                                                          {"llama_gqa_tied", "lora_r6_qv", "f16", 2e-3F},
                                                          {"llama3_rope", "lora_all_linear", "f32", 0.0F},
                                                          {"llama_gqa_tied", "lora_embed", "f32", 0.0F},
                                                          {"mistral_swa", "lora_r4", "f32", 0.0F},
                                                          {"llama3_rope", "lora_lm_head", "f32", 0.0F},
                                                          {"qwen2_bias", "lora_r4", "f32", 0.0F},
                                                          {"qwen3_qknorm", "lora_r4", "q8_0", 2e-2F}}) {
        CAPTURE(model, adapter, form);
        const ModelShape base = base_of(model);
        const auto path = adapters_root() / (std::string(model) + "." + adapter + "." + form + ".gguf");
        const ModulePtr converted = load(path, base);
        const ModulePtr original = load(golden::adapter_folder(model, adapter), base);
        CHECK(converted->kind == original->kind);
        CHECK(converted->invocation == original->invocation);
        CHECK(converted->max_rank == original->max_rank);
        CHECK(converted->id.generation.size() == 64);
        REQUIRE(converted->pairs.size() == original->pairs.size());
        for (std::size_t i = 0; i < original->pairs.size(); ++i) {
            const LowRankPair& a = converted->pairs[i];
            const LowRankPair& b = original->pairs[i];
            CHECK(a.layer == b.layer);
            CHECK(a.projection == b.projection);
            CHECK(a.scale == b.scale);
            CHECK(golden::max_difference(a.a, b.a) <= tolerance);
            CHECK(golden::max_difference(a.b, b.b) <= tolerance);
        }
        REQUIRE(converted->embedding.has_value() == original->embedding.has_value());
        if (converted->embedding) {
            CHECK(converted->embedding->a == original->embedding->a);
            CHECK(converted->embedding->b == original->embedding->b);
            CHECK(converted->embedding->scale == original->embedding->scale);
        }
        const auto look = inspect_module(path, base, {});
        REQUIRE(look);
        CHECK(converted->host_bytes <= look->parsed_bytes);
        CHECK(look->targets.size() == inspect_module(golden::adapter_folder(model, adapter), base, {})->targets.size());
    }
}

TEST_CASE("a control vector acts on the blocks it names and is never verified", "[engine][module][gguf]") {
    const auto path = golden::root() / "states" / "llama_gqa_tied" / "control_vector.gguf";
    const ModulePtr module = load(path, base_of("llama_gqa_tied"));
    CHECK(module->kind == "control_vector");
    CHECK(module->unverified);
    REQUIRE(!module->states.empty());
    for (const StateLayer& state : module->states) {
        CHECK(state.layer >= 1);
        CHECK(state.kind == StateKind::vector);
        CHECK(state.scale == 1.0F);
        CHECK(state.vector.size() == 64);
    }
    ModelShape wide = base_of("llama_gqa_tied");
    wide.hidden_size = 128;
    CHECK(load_module("m", path, wide, {}).error().message.find("this base wants [128]") != std::string::npos);
}

TEST_CASE("a package may hold its adapter in GGUF, which its scale multiplies", "[engine][module][gguf]") {
    ModuleFolder folder;
    folder.write_text("module_config.json", R"({"format":1,"name":"x","adapter":{"path":"adapter.gguf","scale":0.5}})");
    std::filesystem::copy_file(adapters_root() / "llama_gqa_tied.lora_r4.f32.gguf", folder.path() / "adapter.gguf");
    const ModelShape base = base_of("llama_gqa_tied");
    const ModulePtr plain = load(golden::adapter_folder("llama_gqa_tied", "lora_r4"), base);
    const ModulePtr package = load(folder.path(), base);
    REQUIRE(package->pairs.size() == plain->pairs.size());
    CHECK(package->pairs[0].scale == plain->pairs[0].scale / 2);
}

struct GgufFile : ModuleFolder {
    GgufBytes bytes;

    GgufFile() {
        bytes.key("general.architecture", GgufType::string).value("llama");
        bytes.key("general.type", GgufType::string).value("adapter");
        bytes.key("adapter.type", GgufType::string).value("lora");
    }
    std::string fault() {
        const auto file = bytes.file(64u << 10);
        write_text("x.gguf", std::string(reinterpret_cast<const char*>(file.data()), file.size()));
        const auto module = load_module("m", path() / "x.gguf", test::small_base(), {});
        const auto look = inspect_module(path() / "x.gguf", test::small_base(), {});
        CHECK(static_cast<bool>(module) == static_cast<bool>(look));
        if (!module) CHECK(module.error().code == Errc::invalid_module);
        return module ? "" : module.error().message;
    }
};

constexpr std::uint32_t kF32 = 0;

TEST_CASE_METHOD(GgufFile, "a GGUF pair without an alpha has scale 1", "[engine][module][gguf]") {
    bytes.tensor("blk.1.ffn_down.weight.lora_a", {24, 4}, kF32, 0);
    bytes.tensor("blk.1.ffn_down.weight.lora_b", {4, 16}, kF32, 384);
    CHECK(fault().empty());
    CHECK(load(path() / "x.gguf", test::small_base())->pairs[0].scale == 1.0F);
}

TEST_CASE_METHOD(GgufFile, "half a pair in GGUF is refused by the half that is missing", "[engine][module][gguf]") {
    bytes.tensor("blk.1.ffn_down.weight.lora_a", {24, 4}, kF32, 0);
    CHECK(fault().find("its other half, lora_b, is missing") != std::string::npos);
}

TEST_CASE_METHOD(GgufFile, "a GGUF tensor of another shape or place is refused by name", "[engine][module][gguf]") {
    const std::string name =
        GENERATE(std::string("blk.1.attn_norm.weight.lora_a"), std::string("blk.01.attn_q.weight.lora_a"),
                 std::string("blk.2.attn_q.weight.lora_a"), std::string("blk.1.attn_q.weight"),
                 std::string("blk.1.attn_q.bias.lora_a"), std::string("norm.lora_a"));
    bytes.tensor(name, {16, 4}, kF32, 0);
    const std::string message = fault();
    CAPTURE(message);
    CHECK(message.find("x.gguf: tensor \"" + name + "\": this base has") == 0);
}

TEST_CASE("GGUF files of another kind or base are refused by the key", "[engine][module][gguf]") {
    ModuleFolder folder;
    const auto fault = [&](const char* architecture, const char* type, const char* adapter) {
        GgufBytes bytes;
        bytes.key("general.architecture", GgufType::string).value(architecture);
        bytes.key("general.type", GgufType::string).value(type);
        bytes.key("adapter.type", GgufType::string).value(adapter);
        const auto file = bytes.file();
        folder.write_text("x.gguf", std::string(reinterpret_cast<const char*>(file.data()), file.size()));
        const auto module = load_module("m", folder.path() / "x.gguf", test::small_base(), {});
        return module ? "" : module.error().message;
    };
    CHECK(fault("qwen2", "adapter", "lora") == "x.gguf: general.architecture is \"qwen2\", this base is \"llama\"");
    CHECK(fault("llama", "model", "lora") == "x.gguf: it is neither an adapter nor a control vector");
    CHECK(fault("llama", "adapter", "vera") == "x.gguf: adapter.type is \"vera\", only lora is supported");
    CHECK(fault("llama", "adapter", "lora").find("it holds no tensor") != std::string::npos);
    CHECK(fault("controlvector", "model", "") == "x.gguf: it holds no direction");
}

}  // namespace
}  // namespace attune
