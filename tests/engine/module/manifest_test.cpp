#include "engine/module/manifest.hpp"

#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

using Json = nlohmann::ordered_json;
using test::ModuleFolder;
using test::small_base;

struct PackageFolder : ModuleFolder {
    ModelShape base = small_base();
    ModuleLimits limits;
    Json manifest = {{"format", 1}, {"name", "legal"}, {"adapter", {{"path", "adapter"}}}};

    PackageFolder() {
        base.checkpoint = "sha256:aaaa";
        write("adapter");
    }
    void write_manifest() { write_text("module_config.json", manifest.dump(1)); }
    std::string fault() {
        write_manifest();
        const auto module = load_module("m", path(), base, limits);
        const auto look = inspect_module(path(), base, limits);
        CHECK(static_cast<bool>(module) == static_cast<bool>(look));
        return module ? "" : module.error().message;
    }
    ModulePtr load() {
        write_manifest();
        auto module = load_module("m", path(), base, limits);
        if (!module) FAIL(module.error().message);
        return *std::move(module);
    }
};

TEST_CASE_METHOD(PackageFolder, "a package with an adapter part is that adapter at its scale", "[engine][module]") {
    manifest["adapter"]["scale"] = 0.5;
    const ModulePtr module = load();
    CHECK(module->id.name == "m");
    REQUIRE(module->pairs.size() == 4);
    CHECK(module->pairs[0].scale == 1.0F);
    CHECK(module->base_match == "shape");
    manifest["adapter"].erase("scale");
    CHECK(load()->pairs[0].scale == 2.0F);
}

TEST_CASE_METHOD(PackageFolder, "a look tells what the manifest says of routing and serving", "[engine][module]") {
    manifest["version"] = "1.2.0";
    manifest["description"] = "Contracts";
    manifest["license"] = "Apache-2.0";
    manifest["routing"] = {
        {"task_ids", {"legal_qa"}}, {"tags", {"legal"}}, {"keywords", {"contract", "法条"}}, {"priority", 10}};
    manifest["serving"] = {{"cold", "wait"}, {"pin", true}, {"owner", "ann"}};
    write_manifest();
    const auto header = inspect_module(path(), base, limits);
    REQUIRE(header);
    CHECK(header->name == "legal");
    CHECK(header->version == "1.2.0");
    CHECK(header->description == "Contracts");
    CHECK(header->license == "Apache-2.0");
    CHECK(header->cold == ColdPolicy::wait);
    CHECK(header->pin);
    CHECK(header->owner == "ann");
    REQUIRE(header->routing);
    CHECK(header->routing->modules.at(0).name == "legal");
    CHECK(header->routing->task_ids == std::vector<std::string>{"legal_qa"});
    CHECK(header->routing->tags == std::vector<std::string>{"legal"});
    CHECK(header->routing->keywords == std::vector<std::string>{"contract", "法条"});
    CHECK(header->routing->priority == 10);
    CHECK(header->routing->owner == "ann");
}

TEST_CASE_METHOD(PackageFolder, "a package for another base is refused by what differs", "[engine][module]") {
    manifest["base"] = {{"model_type", "llama"}, {"hidden_size", 16}, {"num_hidden_layers", 2}, {"vocab_size", 32}};
    CHECK(fault().empty());
    for (const auto& [key, wrong, message] :
         {std::tuple{"model_type", Json("qwen2"), "base.model_type is \"qwen2\", this base is \"llama\""},
          std::tuple{"hidden_size", Json(64), "base.hidden_size is 64, this base has 16"},
          std::tuple{"num_hidden_layers", Json(3), "base.num_hidden_layers is 3, this base has 2"},
          std::tuple{"vocab_size", Json("32"), "base.vocab_size is \"32\", this base has 32"}}) {
        const Json right = manifest["base"][key];
        manifest["base"][key] = wrong;
        CHECK(fault() == "module_config.json: " + std::string(message));
        manifest["base"][key] = right;
    }
}

TEST_CASE_METHOD(PackageFolder, "a checkpoint must match when it is given", "[engine][module][B25]") {
    manifest["base"] = {{"checkpoint", "sha256:aaaa"}};
    CHECK(load()->base_match == "checkpoint");
    manifest["base"]["checkpoint"] = {"sha256:bbbb", "sha256:aaaa"};
    CHECK(load()->base_match == "checkpoint");
    manifest["base"]["checkpoint"] = "sha256:bbbb";
    CHECK(fault().find("base.checkpoint is another base's") != std::string::npos);
    manifest["base"]["checkpoint"] = Json::array();
    CHECK(fault().find("base.checkpoint is empty") != std::string::npos);
}

TEST_CASE_METHOD(PackageFolder, "a checkpoint that cannot be compared yet is waited for or marked",
                 "[engine][module]") {
    manifest["base"] = {{"checkpoint", "sha256:aaaa"}};
    base.checkpoint.clear();
    write_manifest();
    const auto module = load_module("m", path(), base, limits);
    REQUIRE_FALSE(module);
    CHECK(module.error().code == Errc::unavailable);
    limits.allow_unverified_base = true;
    CHECK(load()->unverified);
    CHECK(load()->base_match == "unverified");
}

TEST_CASE_METHOD(PackageFolder, "order, requirements and members are read, or refused by key", "[engine][module]") {
    manifest["order"] = 20;
    manifest["requires"] = {"code@1.2.0", "tone"};
    write_manifest();
    const auto header = inspect_module(path(), base, limits);
    REQUIRE(header);
    CHECK(header->order == 20);
    CHECK(header->needs == std::vector<Requirement>{{"code", "1.2.0"}, {"tone", ""}});
    CHECK(load()->needs == header->needs);
    const auto refused = [&](const char* key, const Json& value, const std::string& expected) {
        const Json before = manifest;
        manifest[key] = value;
        const std::string message = fault();
        CAPTURE(message);
        CHECK(message.find(expected) != std::string::npos);
        manifest = before;
    };
    refused("order", 1.5, "order is 1.5");
    refused("requires", Json::array({"code@"}), "requires holds \"code@\"");
    refused("requires", Json::array({"legal"}), "requires names the module itself");
    refused("combine", "parallel", "combine is for packages with members only");
    refused("combine", "mean", "combine is for packages with members only");
    refused("members", Json::array({{{"name", "code"}}}), "members and adapter exclude each other");
    refused("state", Json{{"path", "state.safetensors"}}, "state.kind is null, it may be vector, linear, bottleneck");
    refused("adapter", nullptr, "it has neither adapter nor state nor members");
}

TEST_CASE_METHOD(PackageFolder, "a composition lists its members and has no content of its own", "[engine][module]") {
    manifest = {{"format", 1},
                {"name", "both"},
                {"members", Json::array({{{"name", "code"}, {"weight", 0.5}}, {{"name", "legal"}}})},
                {"combine", "parallel"}};
    write_manifest();
    const auto header = inspect_module(path(), base, limits);
    REQUIRE(header);
    CHECK(header->kind == "composition");
    REQUIRE(header->members.size() == 2);
    CHECK(header->members[0].name == "code");
    CHECK(header->members[0].weight == 0.5);
    CHECK(header->members[1].weight == 1.0);
    CHECK(header->combine == Combine::parallel);
    CHECK(load_module("m", path(), base, limits).error().code == Errc::invalid_module);
    for (const auto& [members, expected] :
         {std::pair{Json::array({{{"name", "both"}}}), "without a usable name"},
          {Json::array({{{"name", "a"}}, {{"name", "a"}}}), "names \"a\" twice"},
          {Json::array({{{"name", "a"}, {"weight", 101}}}), "the weight of member \"a\" is 101"},
          {Json::array({"a"}), "not {name, weight}"}}) {
        manifest["members"] = members;
        write_manifest();
        const auto look = inspect_module(path(), base, limits);
        REQUIRE_FALSE(look);
        CHECK(look.error().message.find(expected) != std::string::npos);
    }
}

TEST_CASE_METHOD(PackageFolder, "an adapter's path stays inside its package", "[engine][module]") {
    const auto with = [&](const std::string& adapter_path) {
        manifest["adapter"]["path"] = adapter_path;
        return fault();
    };
    CHECK(with("./adapter/").empty());
    CHECK(with("../adapter").find("leaves the package") != std::string::npos);
    CHECK(with("adapter/../../x").find("leaves the package") != std::string::npos);
    CHECK(with("/etc").find("is not relative") != std::string::npos);
    CHECK(with("").find("adapter.path is missing") != std::string::npos);
    CHECK(with("other").find("other/adapter_config.json is missing") != std::string::npos);
    ModuleFolder elsewhere;
    elsewhere.write();
    std::filesystem::create_directory_symlink(elsewhere.path(), path() / "linked");
    CHECK(with("linked").find("is a link that leaves the module") != std::string::npos);
    write();
    CHECK(with(".").empty());
}

TEST_CASE_METHOD(PackageFolder, "a manifest that says something else is refused by its key", "[engine][module]") {
    const Json good = manifest;
    const auto named = [&](const char* key, const Json& value, const std::string& expected) {
        manifest = good;
        manifest[key] = value;
        const std::string message = fault();
        CAPTURE(key, message);
        CHECK(message.find(expected) != std::string::npos);
    };
    named("format", 2, "format is 2, this engine reads 1");
    named("name", nullptr, "name is missing");
    named("name", 5, "name is 5, not a text");
    named("adaptor", 1, "unknown key \"adaptor\"");
    named("adapter", nullptr, "it has neither adapter nor state nor members");
    named("adapter", Json{{"path", "adapter"}, {"weight", 1}}, "unknown key \"adapter.weight\"");
    named("adapter", Json{{"path", "adapter"}, {"scale", "1"}}, "adapter.scale is \"1\", not a number");
    named("adapter", Json{{"path", "adapter"}, {"scale", 1e300}}, "adapter.scale is 1e+300, not a number");
    named("base", Json{{"layers", 2}}, "unknown key \"base.layers\"");
    named("routing", Json{{"priority", 101}}, "routing.priority is 101");
    named("routing", Json{{"keywords", "x"}}, "routing.keywords is no list of texts");
    named("serving", Json{{"cold", "never"}}, "serving.cold is \"never\"");
    named("serving", Json{{"pin", 1}}, "serving.pin is 1");
    named("serving", Json{{"when", 1}}, "unknown key \"serving.when\"");
    write_text("module_config.json", "{");
    const auto module = load_module("m", path(), base, limits);
    REQUIRE_FALSE(module);
    CHECK(module.error().message == "module_config.json is not valid JSON");
}

}  // namespace
}  // namespace attune
