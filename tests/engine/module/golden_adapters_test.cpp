#include "engine/module/file_base_values.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <memory>

namespace attune {
namespace {

ModelShape shape_of(const std::string& model) {
    const auto shape = read_model_shape(golden::model_folder(model));
    if (!shape) FAIL(shape.error().message);
    return *shape;
}

/// The values of a golden model's own file.
std::shared_ptr<const BaseValues> values_of(const std::string& model) {
    return std::make_shared<test::FileBaseValues>(golden::model_folder(model) / "model.safetensors");
}

TEST_CASE("every reference adapter is loaded whole as what it is", "[engine][module][B1]") {
    const std::map<std::string, std::string> kinds{
        {"adalora", "adalora"}, {"alora", "alora"},       {"dora_r4", "dora"}, {"ia3", "ia3"},
        {"loha_r4", "loha"},    {"lokr_r4", "lokr"},      {"oft_b8", "oft"},   {"prefix5", "prefix"},
        {"prompt6", "prompt"},  {"ptuning6", "p_tuning"}, {"vera_r8", "vera"}, {"prefix5_projection", "prefix"}};
    int loaded = 0;
    for (const std::string& model : golden::models()) {
        const ModelShape base = shape_of(model);
        ModuleLimits limits;
        limits.base_values = values_of(model);
        for (const auto& entry : std::filesystem::directory_iterator(golden::root() / "adapters" / model)) {
            const std::string name = entry.path().filename();
            CAPTURE(model, name);
            const auto module = load_module(name, entry.path(), base, limits);
            INFO((module ? "" : module.error().message));
            REQUIRE(module);
            const auto look = inspect_module(entry.path(), base, limits);
            REQUIRE(look);
            CHECK((*module)->host_bytes <= look->parsed_bytes);
            CHECK((*module)->kind == look->kind);
            CHECK((*module)->max_rank == look->max_rank);
            const auto kind = kinds.find(name);
            CHECK(look->kind == (kind != kinds.end() ? kind->second : name.starts_with("miss") ? "miss" : "lora"));
            ++loaded;
        }
    }
    CHECK(loaded == 93);
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
