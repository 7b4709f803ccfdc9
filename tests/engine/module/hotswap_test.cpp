// modules.swap = strict: the rows of PEFT's hotswap table that a server can meet (1 to 9 and 21).

#include "engine/module/hotswap.hpp"

#include "engine/module/file_base_values.hpp"
#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <memory>

namespace attune {
namespace {

using test::ModuleFolder;

SwapFacts facts_of(const ModuleFolder& folder) {
    folder.write();
    const auto module = load_module("m", folder.path(), test::small_base(), {.swap_facts = true});
    if (!module) FAIL(module.error().message);
    return *(*module)->swap;
}

std::string refusal(const SwapFacts& present, const SwapFacts& next) {
    const auto checked = check_hotswap(present, next);
    if (checked) return {};
    CHECK(checked.error().code == Errc::invalid_module);
    return checked.error().message;
}

TEST_CASE("facts are kept only where the limits ask for them, and counted", "[engine][module][hotswap]") {
    ModuleFolder folder;
    folder.write();
    const auto without = load_module("m", folder.path(), test::small_base(), {});
    const auto with = load_module("m", folder.path(), test::small_base(), {.swap_facts = true});
    REQUIRE(without);
    REQUIRE(with);
    CHECK_FALSE((*without)->swap);
    REQUIRE((*with)->swap);
    CHECK((*with)->swap->keys.size() == 8);
    CHECK((*with)->host_bytes == (*without)->host_bytes + (*with)->swap->bytes());
    const auto look = inspect_module(folder.path(), test::small_base(), {.swap_facts = true});
    REQUIRE(look);
    CHECK((*with)->host_bytes <= look->parsed_bytes);
    CHECK((*with)->id.generation == (*without)->id.generation);
}

TEST_CASE("rows 1 to 5: ranks, alpha and fewer layers are a swap", "[engine][module][hotswap]") {
    ModuleFolder present;
    const SwapFacts now = facts_of(present);
    CHECK(refusal(now, now).empty());
    for (const int rank : {2, 7}) {
        ModuleFolder other;
        other.config["r"] = rank;
        other.config["lora_alpha"] = 3;
        other.tensors.clear();
        for (const int layer : {0, 1}) {
            other.add_pair(layer, Projection::q, rank);
            other.add_pair(layer, Projection::down, rank);
        }
        CHECK(refusal(now, facts_of(other)).empty());
    }
    ModuleFolder fewer;
    fewer.config["target_modules"] = {"q_proj"};
    fewer.config["layers_to_transform"] = {1};
    fewer.tensors.clear();
    fewer.add_pair(1, Projection::q, 4);
    CHECK(refusal(now, facts_of(fewer)).empty());
}

TEST_CASE("row 6: tensors that the present adapter has no place for are named", "[engine][module][hotswap]") {
    ModuleFolder present;
    ModuleFolder wider;
    wider.config["target_modules"] = {"q_proj", "down_proj", "v_proj"};
    wider.add_pair(1, Projection::v, 4);
    wider.add_pair(0, Projection::v, 4);
    const std::string text = refusal(facts_of(present), facts_of(wider));
    CHECK(text ==
          "Hot swapping the adapter did not succeed, unexpected keys found: "
          "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight, "
          "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight, "
          "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight, "
          "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight.");
    CHECK(unknown_hotswap(facts_of(present)).message.find("and 4 more.") != std::string::npos);  // row 21
}

TEST_CASE("rows 7 and 8: other types, and equal ones that are no LoRA", "[engine][module][hotswap]") {
    const SwapFacts lora{"LORA", {}, {}};
    const SwapFacts ia3{"IA3", {}, {}};
    CHECK(refusal(lora, ia3) == "Incompatible PEFT types found: LORA and IA3");
    CHECK(refusal(ia3, ia3) == "Hotswapping only supports LORA but IA3 was passed");
    CHECK(refusal({"STATE", {}, {}}, lora) == "Incompatible PEFT types found: STATE and LORA");
}

TEST_CASE("row 9: configurations that differ are named in PEFT's order and Python's words",
          "[engine][module][hotswap]") {
    ModuleFolder present;
    const SwapFacts now = facts_of(present);
    const auto with = [&](const char* key, const nlohmann::ordered_json& value) {
        ModuleFolder other;
        other.config[key] = value;
        return refusal(now, facts_of(other));
    };
    CHECK(with("use_rslora", true) == "Configs are incompatible: for use_rslora, False != True");
    CHECK(with("lora_dropout", 0.05) == "Configs are incompatible: for lora_dropout, 0.0 != 0.05");
    CHECK(with("alpha_pattern", {{"q_proj", 32}}) ==
          "Configs are incompatible: for alpha_pattern, {} != {'q_proj': 32}");
    CHECK(with("lora_dropout", 0).empty());
    CHECK(with("use_rslora", false).empty());
}

TEST_CASE("the reference's swap sequences are refused where strict says so, in its words",
          "[engine][module][hotswap]") {
    const auto modes = golden::read_json(golden::root().parent_path() / "golden_states" / "hotswap_modes.json");
    const auto sequences = golden::read_json(golden::root() / "hotswap.json");
    REQUIRE(modes.size() == sequences.size());
    int refused = 0;
    int swapped = 0;
    for (std::size_t number = 0; number < sequences.size(); ++number) {
        const auto& sequence = sequences[number];
        const std::string model = sequence.at("model");
        REQUIRE(modes[number].at("sequence") == sequence.at("sequence"));
        const auto base = read_model_shape(golden::model_folder(model));
        REQUIRE(base);
        ModuleLimits limits;
        limits.swap_facts = true;
        limits.base_values = std::make_shared<test::FileBaseValues>(golden::model_folder(model) / "model.safetensors");
        SwapFacts present;
        for (std::size_t i = 0; i < sequence.at("steps").size(); ++i) {
            const auto& step = sequence.at("steps")[i];
            const std::string name = step.contains("load") ? step.at("load") : step.at("swap_in");
            CAPTURE(model, sequence.at("sequence"), name);
            const auto module = load_module(name, golden::adapter_folder(model, name), *base, limits);
            REQUIRE(module);
            const std::string text = i == 0 ? "" : refusal(present, *(*module)->swap);
            CHECK(text.empty() == modes[number].at("steps")[i].at("strict").at("accepted").get<bool>());
            if (step.contains("message_start")) {
                CHECK(text.starts_with(step.at("message_start").get<std::string>()));
                ++refused;
                continue;
            }
            CHECK(text.empty());
            if (i == 0) present = *(*module)->swap;  // smaller ones leave its places where they are
            ++swapped;
        }
    }
    CHECK(refused == 20);
    CHECK(swapped > 30);
}

}  // namespace
}  // namespace attune
