#include "engine/module/convert_module.hpp"

#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"

#include <catch2/catch.hpp>

#include <fstream>

namespace attune {
namespace {

using test::FileTensors;
using test::ModuleFolder;
using test::small_base;

struct ConvertFolder : ModuleFolder {
    ModuleFolder place;
    ModelShape base = small_base();
    PackageDescription description;

    ConvertFolder() {
        base.checkpoint = "sha256:aaaa";
        description.name = "legal";
        write();
    }
    std::filesystem::path out() const { return place.path() / "legal"; }
    void give_state() {
        FileTensors state;
        state["layers.1.vector"] = {{16}, std::vector<float>(16, 0.5F)};
        const std::string bytes = test::safetensors_bytes(state);
        place.write_text("vector.safetensors", bytes);
        description.state = place.path() / "vector.safetensors";
        description.state_kind = "vector";
        description.state_layers = "1";
        description.state_scales = {0.25};
    }
    std::string fault(const std::filesystem::path& adapter) {
        const auto made = make_package(adapter, description, &base, out());
        CHECK_FALSE(std::filesystem::exists(place.path() / "legal.part"));
        if (!made) CHECK_FALSE(std::filesystem::exists(out()));
        return made ? "" : made.error().message;
    }
};

TEST_CASE_METHOD(ConvertFolder, "a package made of an adapter and a state is both of them",
                 "[engine][module][convert]") {
    give_state();
    description.version = "1.2.0";
    description.needs = {"code@1"};
    description.order = 7;
    REQUIRE(fault(path()).empty());
    const auto module = load_module("legal", out(), base, {});
    INFO((module ? "" : module.error().message));
    REQUIRE(module);
    CHECK((*module)->kind == "lora+state");
    CHECK((*module)->base_match == "checkpoint");
    CHECK((*module)->order == 7);
    CHECK((*module)->version == "1.2.0");
    CHECK((*module)->needs == std::vector<Requirement>{{"code", "1"}});
    REQUIRE((*module)->states.size() == 1);
    CHECK((*module)->states[0].scale == 0.25F);
    const auto plain = load_module("legal", path(), base, {});
    REQUIRE(plain);
    CHECK((*module)->pairs[0].a == (*plain)->pairs[0].a);
    CHECK(make_package(path(), description, &base, out()).error().message == "legal exists already");
    CHECK(extract_peft(out(), place.path() / "back").error().message.find("has a state") != std::string::npos);
}

TEST_CASE_METHOD(ConvertFolder, "an adapter comes out of its package as it went in", "[engine][module][convert]") {
    REQUIRE(fault(path()).empty());
    const auto back = extract_peft(out(), place.path() / "back");
    INFO((back ? "" : back.error().message));
    REQUIRE(back);
    const auto before = load_module("m", path(), base, {});
    const auto after = load_module("m", place.path() / "back", base, {});
    REQUIRE(before);
    REQUIRE(after);
    CHECK((*before)->id.generation == (*after)->id.generation);
}

TEST_CASE_METHOD(ConvertFolder, "what a package lacks is told, and nothing is left behind",
                 "[engine][module][convert]") {
    CHECK(fault({}) == "a package needs an adapter or a state");
    CHECK(fault(place.path()).find("needs adapter_config.json") != std::string::npos);
    give_state();
    base.checkpoint.clear();
    CHECK(fault(path()).find("its checkpoint must be known") != std::string::npos);
    base.checkpoint = "sha256:aaaa";
    description.state_layers = "one";
    CHECK(fault(path()).find("is no range and no list") != std::string::npos);
    description.state_kind.clear();
    CHECK(fault(path()) == "the state's kind is not given");
    description.name.clear();
    CHECK(fault(path()) == "the package's name is not given");
}

}  // namespace
}  // namespace attune
