#include "engine/module/file_base_values.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <memory>

namespace attune {
namespace {

std::filesystem::path states_root() { return std::filesystem::path(ATTUNE_TEST_DATA) / "golden_states"; }

const nlohmann::json& index() {
    static const nlohmann::json kIndex = golden::read_json(states_root() / "index.json");
    return kIndex;
}

ModelShape base_of(const std::string& model) {
    auto shape = read_model_shape(golden::model_folder(model));
    if (!shape) FAIL(shape.error().message);
    shape->checkpoint = index().at("checkpoints").at(model).get<std::string>();
    return *std::move(shape);
}

TEST_CASE("every reference package is loaded whole, or is a composition", "[engine][module][states]") {
    int loaded = 0;
    int compositions = 0;
    for (const auto& folder : std::filesystem::directory_iterator(states_root() / "packages")) {
        const std::string model = folder.path().filename();
        const ModelShape base = base_of(model);
        ModuleLimits limits;
        limits.base_values = std::make_shared<test::FileBaseValues>(golden::model_folder(model) / "model.safetensors");
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            CAPTURE(model, entry.path().filename());
            const auto look = inspect_module(entry.path(), base, limits);
            INFO((look ? "" : look.error().message));
            REQUIRE(look);
            if (!look->members.empty()) {
                CHECK(look->kind == "composition");
                ++compositions;
                continue;
            }
            const auto module = load_module("m", entry.path(), base, limits);
            INFO((module ? "" : module.error().message));
            REQUIRE(module);
            CHECK((*module)->kind == look->kind);
            CHECK((*module)->host_bytes <= look->parsed_bytes);
            CHECK((*module)->unverified == (entry.path().extension() == ".gguf"));
            ++loaded;
        }
    }
    CHECK(loaded == 72);
    CHECK(compositions == 4);
}

TEST_CASE("every damaged reference package is refused by what is wrong with it", "[engine][module][states]") {
    const nlohmann::json bad = golden::read_json(states_root() / "bad_packages.json");
    const std::string model = bad.at("model");
    const ModelShape base = base_of(model);
    int refused = 0;
    for (const nlohmann::json& entry : bad.at("packages")) {
        const std::string name = entry.at("package");
        if (name.starts_with("requires_")) continue;  // whole in itself: the others decide
        CAPTURE(name);
        const auto path = states_root() / "bad" / name;
        const auto module = load_module(name, path, base, {});
        REQUIRE_FALSE(module);
        CHECK(module.error().code == Errc::invalid_module);
        for (const nlohmann::json& part : entry.at("error_names"))
            CHECK(module.error().message.find(part.get<std::string>()) != std::string::npos);
        ++refused;
        if (!entry.contains("with_allow_unverified_base")) continue;
        const auto allowed = load_module(name, path, base, {.allow_unverified_base = true});
        REQUIRE(allowed);
        CHECK((*allowed)->unverified);
    }
    CHECK(refused == 15);
}

TEST_CASE("scales and layers of a state mean what the manifest says", "[engine][module][states]") {
    const auto states = [](const std::string& name) {
        const auto module =
            load_module(name, states_root() / "packages/llama_gqa_tied" / name, base_of("llama_gqa_tied"), {});
        if (!module) FAIL(module.error().message);
        return (*module)->states;
    };
    const auto tied = states("linear_tied");
    REQUIRE(tied.size() == 2);
    CHECK(tied[0].scale == 0.5F);
    CHECK(tied[1].scale == 0.3F);
    const auto width = static_cast<std::size_t>(tied[0].width);
    CHECK(tied[0].up[1] == tied[0].down[64]);  // the transposed down, [hidden, width]
    CHECK(tied[0].up[width] == tied[0].down[1]);
    CHECK(states("default_scale")[0].scale == 0.1F);
    const auto middle = states("pack");
    REQUIRE(middle.size() == 1);
    CHECK(middle[0].layer == 1);
    CHECK(middle[0].activation == Activation::silu);
    const auto widths = states("widths");
    CHECK(widths[0].width != widths[1].width);
    CHECK(states("vector")[1].layer == 2);
}

}  // namespace
}  // namespace attune
