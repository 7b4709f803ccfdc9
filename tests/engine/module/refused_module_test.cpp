#include "engine/module/module_loader.hpp"

#include "engine/module/module_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

namespace attune {
namespace {

using test::FileTensor;
using test::ModuleFolder;
using test::projection_path;
using test::small_base;

const std::string kQ0 = "base_model.model.model.layers.0.self_attn.q_proj";

struct RefusedFolder : ModuleFolder {
    ModuleLimits limits;

    // The load's error; the look must say the same unless only values are wrong.
    Error refused(bool also_by_look = true) {
        const auto module = load_module("m", path(), small_base(), limits);
        if (module) {
            FAIL("the module was accepted");
            return {};
        }
        const auto look = inspect_module(path(), small_base(), limits);
        CHECK(static_cast<bool>(look) != also_by_look);
        if (!look) CHECK(look.error().message == module.error().message);
        CHECK(module.error().message.find(path().string()) == std::string::npos);
        return module.error();
    }
    std::string fault(bool also_by_look = true) {
        write();
        const Error error = refused(also_by_look);
        CHECK(error.code == Errc::invalid_module);
        return error.message;
    }
};

TEST_CASE_METHOD(RefusedFolder, "a missing folder is not found, and its path is not told", "[engine][module]") {
    const auto module = load_module("m", path() / "nowhere", small_base(), limits);
    REQUIRE_FALSE(module);
    CHECK(module.error().code == Errc::not_found);
    CHECK(module.error().message == "there is no such module folder");
}

TEST_CASE_METHOD(RefusedFolder, "A13: a folder without weights or config is refused by what is missing",
                 "[engine][module][A13]") {
    CHECK(refused().message == "the module has neither module_config.json nor adapter_config.json");
    write_text("adapter_config.json", config.dump());
    CHECK(refused().message == "adapter_model.safetensors is missing");
    CHECK(refused().code == Errc::invalid_module);
}

TEST_CASE_METHOD(RefusedFolder, "pickles are never opened", "[engine][module][E11]") {
    write_text("adapter_model.bin", "\x80\x02");
    CHECK(refused().message.rfind("adapter_model.bin is a pickle", 0) == 0);
    write_text("adapter_config.json", config.dump());
    CHECK(refused().message.rfind("adapter_model.bin is a pickle", 0) == 0);
}

TEST_CASE_METHOD(RefusedFolder, "a module that adapts nothing is refused", "[engine][module][B1]") {
    config["target_modules"] = {"does_not_exist"};
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj has tensors, but target_modules "
          "(\"does_not_exist\") does not name it");
    tensors.clear();
    CHECK(fault() == "adapter_model.safetensors: it holds no tensor: no module of this base is adapted");
    tensors["base_model.model.model.layers.0.does_not_exist.lora_A.weight"] = {{4, 16}, std::vector<float>(64)};
    CHECK(fault() ==
          "adapter_model.safetensors: tensor "
          "\"base_model.model.model.layers.0.does_not_exist.lora_A.weight\": this base has no place for it");
}

TEST_CASE_METHOD(RefusedFolder, "a target that the base has and the file has not is refused", "[engine][module]") {
    config["target_modules"] = {"q_proj", "down_proj", "v_proj"};
    CHECK(fault() ==
          "adapter_config.json: target_modules (\"q_proj\", \"down_proj\", \"v_proj\") names "
          "model.layers.0.self_attn.v_proj, but the file has no tensor for it");
    config["target_modules"] = {"q_proj", "down_proj", "lm_head"};
    CHECK(
        fault() ==
        "adapter_config.json: target_modules (\"q_proj\", \"down_proj\", \"lm_head\") names lm_head, but the file has "
        "no tensor for it");
    // A name that this base has no place for cannot be missed.
    config["target_modules"] = {"q_proj", "down_proj", "W_pack"};
    write();
    CHECK(load_module("m", path(), small_base(), limits));
}

TEST_CASE_METHOD(RefusedFolder, "half a pair is refused by the half that is missing", "[engine][module]") {
    tensors.erase(kQ0 + ".lora_B.weight");
    CHECK(fault() == "adapter_model.safetensors: model.layers.0.self_attn.q_proj has lora_A, but no lora_B");
    add_pair(0, Projection::q, 4);
    tensors.erase(kQ0 + ".lora_A.weight");
    CHECK(fault() == "adapter_model.safetensors: model.layers.0.self_attn.q_proj has lora_B, but no lora_A");
}

TEST_CASE_METHOD(RefusedFolder, "a wrong shape is told with what was expected", "[engine][module][B25]") {
    tensors[kQ0 + ".lora_A.weight"] = {{4, 17}, std::vector<float>(68)};
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj: lora_A is [4, 17], this base wants [r, 16]");
    add_pair(0, Projection::q, 4);
    tensors[kQ0 + ".lora_B.weight"] = {{4, 32}, std::vector<float>(128)};
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj: lora_B is [4, 32], this base wants [32, r]");
    add_pair(0, Projection::q, 4);
    tensors[kQ0 + ".lora_B.weight"] = {{32, 5}, std::vector<float>(160)};
    CHECK(
        fault() ==
        "adapter_model.safetensors: model.layers.0.self_attn.q_proj: lora_A is [4, 16], lora_B is [32, 5]: two ranks");
    tensors[kQ0 + ".lora_A.weight"] = {{64}, std::vector<float>(64)};
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj: lora_A is [64], this base wants [r, 16]");
}

TEST_CASE_METHOD(RefusedFolder, "a rank of zero is refused", "[engine][module]") {
    tensors[kQ0 + ".lora_A.weight"] = {{0, 16}, {}};
    tensors[kQ0 + ".lora_B.weight"] = {{32, 0}, {}};
    CHECK(fault() == "adapter_model.safetensors: model.layers.0.self_attn.q_proj: its rank is 0");
}

TEST_CASE_METHOD(RefusedFolder, "a rank over the limit is told with the limit", "[engine][module][B12]") {
    limits.max_rank = 16;
    add_pair(1, Projection::down, 17);
    config["rank_pattern"] = {{"layers.1.mlp.down_proj", 17}};
    CHECK(fault() == "adapter_model.safetensors: model.layers.1.mlp.down_proj: its rank is 17, the limit is 16");
    limits.max_rank = 17;
    CHECK(load_module("m", path(), small_base(), limits));
}

TEST_CASE_METHOD(RefusedFolder, "a rank that is not the config's is refused", "[engine][module]") {
    config["r"] = 8;
    CHECK(fault() == "adapter_model.safetensors: model.layers.0.self_attn.q_proj: its rank is 4, the config says 8");
}

TEST_CASE_METHOD(RefusedFolder, "a layer beyond the base is refused", "[engine][module]") {
    add_pair(2, Projection::q, 4);
    CHECK(fault() ==
          "adapter_model.safetensors: tensor \"base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight\": "
          "this base has layers 0 to 1");
}

TEST_CASE_METHOD(RefusedFolder, "layer numbers are plain decimals", "[engine][module]") {
    for (const char* number : {"00", "-1", "+0", "1e0", "99999999999999999999", ""}) {
        tensors.erase(kQ0 + ".lora_A.weight");
        const std::string name =
            "base_model.model.model.layers." + std::string(number) + ".self_attn.q_proj.lora_A.weight";
        tensors[name] = {{4, 16}, std::vector<float>(64)};
        CAPTURE(number);
        CHECK(fault().find("this base has") != std::string::npos);
        tensors.erase(name);
    }
}

TEST_CASE_METHOD(RefusedFolder, "values that are not finite are refused with their tensor", "[engine][module][B23]") {
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")})
        for (const char* type : {"F32", "F16", "BF16"}) {
            add_pair(0, Projection::q, 4);
            FileTensor& tensor = tensors[kQ0 + ".lora_B.weight"];
            tensor.type_name = type;
            tensor.values.back() = bad;
            CAPTURE(type, bad);
            CHECK(fault(false) ==
                  "adapter_model.safetensors: tensor \"" + kQ0 + ".lora_B.weight\" holds a value that is not finite");
        }
}

TEST_CASE_METHOD(RefusedFolder, "element types other than the float ones are refused", "[engine][module]") {
    for (const char* type : {"I16", "U16"}) {
        FileTensor& tensor = tensors[kQ0 + ".lora_A.weight"];
        tensor.type_name = type;
        CHECK(fault() == "adapter_model.safetensors: tensor \"" + kQ0 + ".lora_A.weight\": dtype " + std::string(type) +
                             " is not supported, only F32, F16 and BF16");
    }
}

TEST_CASE_METHOD(RefusedFolder, "flags and tensors of DoRA must agree", "[engine][module][B5]") {
    config["use_dora"] = true;
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj has lora_A, but no lora_magnitude_vector");
    config["use_dora"] = false;
    tensors[kQ0 + ".lora_magnitude_vector"] = {{32}, std::vector<float>(32)};
    CHECK(fault() ==
          "adapter_model.safetensors: model.layers.0.self_attn.q_proj: lora_magnitude_vector is there, but use_dora is "
          "not set");
}

TEST_CASE_METHOD(RefusedFolder, "what is built from the base's weights waits for them", "[engine][module][B5]") {
    config["use_dora"] = true;
    for (const int layer : {0, 1})
        for (const Projection projection : {Projection::q, Projection::down})
            tensors["base_model.model." + projection_path(layer, projection) + ".lora_magnitude_vector"] = {
                {small_base().out_features(projection)},
                std::vector<float>(static_cast<std::size_t>(small_base().out_features(projection)), 1.0F)};
    write();
    const auto module = load_module("m", path(), small_base(), limits);
    REQUIRE_FALSE(module);
    CHECK(module.error().code == Errc::unavailable);
    CHECK(inspect_module(path(), small_base(), limits)->kind == "dora");
}

TEST_CASE_METHOD(RefusedFolder, "biases and the config's word for them must agree", "[engine][module][B14]") {
    config["lora_bias"] = true;
    CHECK(fault() == "adapter_model.safetensors: model.layers.0.self_attn.q_proj has lora_A, but no lora_B.bias");
    config["lora_bias"] = false;
    tensors[kQ0 + ".lora_B.bias"] = {{32}, std::vector<float>(32)};
    CHECK(fault().find(".lora_B.bias\": this kind of adapter has no place for it here") != std::string::npos);
    tensors.erase(kQ0 + ".lora_B.bias");
    tensors[kQ0 + ".base_layer.bias"] = {{32}, std::vector<float>(32)};
    CHECK(
        fault() ==
        "adapter_model.safetensors: model.layers.0.self_attn.q_proj.base_layer.bias is there, but the config's bias is "
        "none");
}

TEST_CASE_METHOD(RefusedFolder, "saved modules and the config's names for them must agree", "[engine][module][B4]") {
    config["modules_to_save"] = {"lm_head"};
    CHECK(fault() == "adapter_config.json: modules_to_save names \"lm_head\", but the file has no lm_head.weight");
    config["modules_to_save"] = nullptr;
    tensors["base_model.model.lm_head.weight"] = {{32, 16}, std::vector<float>(512)};
    CHECK(fault() == "adapter_model.safetensors: lm_head.weight is there, but modules_to_save does not name it");
    config["modules_to_save"] = {"lm_head"};
    tensors["base_model.model.lm_head.weight"] = {{33, 16}, std::vector<float>(528)};
    CHECK(
        fault() ==
        "adapter_model.safetensors: its tables have 1 rows more than this base's, but embed_tokens has none for them");
    tensors["base_model.model.lm_head.weight"] = {{31, 16}, std::vector<float>(496)};
    CHECK(fault() == "adapter_model.safetensors: lm_head: weight is [31, 16], this base wants [32, 16]");
}

TEST_CASE_METHOD(RefusedFolder, "halves of adapters of embeddings and heads are refused by name",
                 "[engine][module][B4]") {
    const auto with = [&](const std::string& name, std::vector<std::int64_t> shape) {
        std::size_t count = 1;
        for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
        tensors[name] = {std::move(shape), std::vector<float>(count)};
        const std::string message = fault();
        tensors.erase(name);
        return message;
    };
    const auto names = [&](const std::string& message, const char* part) {
        CAPTURE(message);
        CHECK(message.find(part) != std::string::npos);
    };
    names(with("base_model.model.model.embed_tokens.lora_embedding_A", {4, 32}), "but no lora_embedding_B");
    names(with("base_model.model.model.embed_tokens.base_layer.weight", {33, 16}), "but lm_head has none for them");
    names(with("base_model.model.lm_head.lora_A.weight", {4, 16}), "lm_head has lora_A, but no lora_B");
    names(with("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {2, 16}),
          "trainable_token_indices names none");
}

TEST_CASE_METHOD(RefusedFolder, "every tensor that would be left over is refused", "[engine][module]") {
    for (const char* name :
         {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
          "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
          "base_model.model.model.layers.0.self_attn.gate_proj.lora_A.weight",
          "base_model.model.model.layers.0.q_proj.lora_A.weight", "model.layers.0.self_attn.q_proj.lora_A.weight",
          "base_model.model.vision.layers.0.self_attn.q_proj.lora_A.weight", "lora_A.weight", ""}) {
        tensors[name] = {{4, 16}, std::vector<float>(64)};
        CAPTURE(name);
        CHECK(fault().find("has no place for it") != std::string::npos);
        tensors.erase(name);
    }
    add_pair(0, Projection::q, 4, "language_model.model.");
    CHECK(fault().find("its prefix is not that of the other tensors") != std::string::npos);
}

TEST_CASE_METHOD(RefusedFolder, "A15: damaged weight files are refused wherever they are cut",
                 "[engine][module][A15]") {
    write();
    std::ifstream stream(path() / "adapter_model.safetensors", std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(stream), {}};
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
        write_text("adapter_model.safetensors", whole.substr(0, size));
        CAPTURE(size);
        const Error error = refused();
        CHECK(error.code == Errc::invalid_module);
        CHECK(error.message.rfind("adapter_model.safetensors: ", 0) == 0);
    }
    std::string huge = whole;
    const std::uint64_t length = 1ULL << 63;
    std::memcpy(huge.data(), &length, 8);
    write_text("adapter_model.safetensors", huge);
    CHECK(refused().message.find("the header is said to have") != std::string::npos);
}

TEST_CASE_METHOD(RefusedFolder, "byte and file limits are told with what was found", "[engine][module]") {
    limits.package_bytes = 1000;
    CHECK(fault().find("the limit is 1000") != std::string::npos);
    limits.package_bytes = 1 << 20;
    limits.package_files = 1;
    CHECK(fault() == "the module has more files than the limit of 1");
    limits.package_files = 2;
    write_text("adapter_config.json", config.dump() + std::string(2 << 20, ' '));
    CHECK(refused().message.find("bytes, the limit is") != std::string::npos);
}

TEST_CASE_METHOD(RefusedFolder, "links may not lead out of the module, unless a root holds their target",
                 "[engine][module]") {
    ModuleFolder elsewhere;
    elsewhere.write();
    write();
    std::filesystem::remove(path() / "adapter_model.safetensors");
    std::filesystem::create_symlink(elsewhere.path() / "adapter_model.safetensors",
                                    path() / "adapter_model.safetensors");
    CHECK(refused().message == "adapter_model.safetensors is a link that leaves the module");
    limits.roots = {path(), elsewhere.path()};
    CHECK(load_module("m", path(), small_base(), limits));
    limits.roots = {path()};
    CHECK(refused().message == "adapter_model.safetensors is a link that leaves the module");
    std::filesystem::remove(path() / "adapter_model.safetensors");
    std::filesystem::create_symlink("nowhere", path() / "adapter_model.safetensors");
    CHECK(refused().message == "adapter_model.safetensors is missing");
}

TEST_CASE_METHOD(RefusedFolder, "a tokenizer behind a link that leaves the module is refused unread",
                 "[engine][module]") {
    ModuleFolder elsewhere;
    elsewhere.write_text("tokenizer.json", "{}");
    write();
    std::filesystem::create_symlink(elsewhere.path() / "tokenizer.json", path() / "tokenizer.json");
    limits.base_folder = elsewhere.path();  // equal bytes would be accepted
    CHECK(refused(/*also_by_look=*/false).message == "tokenizer.json is a link that leaves the module");
    limits.roots = {path(), elsewhere.path()};
    CHECK(load_module("m", path(), small_base(), limits));
}

}  // namespace
}  // namespace attune
