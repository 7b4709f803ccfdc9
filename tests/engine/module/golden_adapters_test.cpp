#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <cmath>

namespace attune {
namespace {

ModelShape shape_of(const std::string& model) {
    const auto shape = read_model_shape(golden::model_folder(model));
    if (!shape) FAIL(shape.error().message);
    return *shape;
}

const std::map<std::string, std::string>& refusals() {
    static const std::map<std::string, std::string> kRefusals{
        {"adalora", "peft_type \"ADALORA\" is not supported yet"},
        {"alora", "aLoRA is not supported yet"},
        {"dora_r4", "DoRA (use_dora) is not supported yet"},
        {"ia3", "peft_type \"IA3\" is not supported yet"},
        {"loha_r4", "peft_type \"LOHA\" is not supported yet"},
        {"lokr_r4", "peft_type \"LOKR\" is not supported yet"},
        {"lora_bias", "biases (lora_bias is true) are not supported yet"},
        {"lora_embed", "LoRA on embeddings is not supported yet"},
        {"lora_lm_head", "LoRA on lm_head is not supported yet"},
        {"lora_new_tokens", "new tokens are not supported yet"},
        {"lora_save_head", "(modules_to_save \"lm_head\") are not supported yet"},
        {"miss_bat", "peft_type \"MISS\" is not supported yet"},
        {"miss_mini", "peft_type \"MISS\" is not supported yet"},
        {"miss_r12", "peft_type \"MISS\" is not supported yet"},
        {"miss_r8", "peft_type \"MISS\" is not supported yet"},
        {"oft_b8", "peft_type \"OFT\" is not supported yet"},
        {"prefix5", "peft_type \"PREFIX_TUNING\" is not supported yet"},
        {"prefix5_projection", "peft_type \"PREFIX_TUNING\" is not supported yet"},
        {"prompt6", "peft_type \"PROMPT_TUNING\" is not supported yet"},
        {"ptuning6", "peft_type \"P_TUNING\" is not supported yet"},
        {"vera_r8", "peft_type \"VERA\" is not supported yet"},
    };
    return kRefusals;
}

TEST_CASE("every reference adapter is either loaded or refused by its kind", "[engine][module]") {
    int loaded = 0;
    int refused = 0;
    for (const std::string& model : golden::models()) {
        const ModelShape base = shape_of(model);
        for (const auto& entry : std::filesystem::directory_iterator(golden::root() / "adapters" / model)) {
            const std::string name = entry.path().filename();
            CAPTURE(model, name);
            const auto module = load_module(name, entry.path(), base, {});
            const auto look = inspect_module(entry.path(), base, {});
            REQUIRE(static_cast<bool>(module) == static_cast<bool>(look));
            const auto expected = refusals().find(name);
            if (expected == refusals().end()) {
                INFO((module ? "" : module.error().message));
                REQUIRE(module);
                CHECK((*module)->host_bytes == look->parsed_bytes);
                ++loaded;
                continue;
            }
            REQUIRE_FALSE(module);
            CHECK(module.error().code == Errc::invalid_module);
            CHECK(module.error().message.find(expected->second) != std::string::npos);
            ++refused;
        }
    }
    CHECK(loaded == 5 * 4 + 3);
    CHECK(refused > 60);
}

TEST_CASE("patterns of a reference adapter give each layer its own scale", "[engine][module][B7]") {
    const auto module =
        load_module("m", golden::adapter_folder("llama_gqa_tied", "rslora_patterns"), shape_of("llama_gqa_tied"), {});
    REQUIRE(module);
    const auto scale = [&](int layer, Projection projection) {
        for (const LowRankPair& pair : (*module)->pairs)
            if (pair.layer == layer && pair.projection == projection) return pair.scale;
        return 0.0F;
    };
    CHECK(scale(0, Projection::q) == static_cast<float>(5 / std::sqrt(4.0)));
    CHECK(scale(1, Projection::q) == static_cast<float>(6 / std::sqrt(4.0)));
    CHECK(scale(0, Projection::v) == static_cast<float>(6 / std::sqrt(8.0)));
    CHECK(scale(0, Projection::o) == static_cast<float>(12 / std::sqrt(3.0)));
    CHECK(scale(1, Projection::o) == static_cast<float>(40 / std::sqrt(4.0)));
    CHECK(scale(1, Projection::up) == static_cast<float>(3 / std::sqrt(2.0)));
    CHECK(scale(1, Projection::down) == static_cast<float>(6 / std::sqrt(2.0)));
    CHECK(scale(2, Projection::up) == static_cast<float>(3 / std::sqrt(4.0)));
}

TEST_CASE("an adapter of another base is refused by its shapes", "[engine][module][B25]") {
    ModelShape wide = shape_of("llama_gqa_tied");
    wide.hidden_size *= 2;
    const auto module = load_module("m", golden::adapter_folder("llama_gqa_tied", "lora_r4"), wide, {});
    REQUIRE_FALSE(module);
    CHECK(module.error().message.find("this base wants [") != std::string::npos);
}

}  // namespace
}  // namespace attune
