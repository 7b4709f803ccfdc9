#include "engine/files/hash.hpp"
#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/module/package_files.hpp"

#include <catch2/catch.hpp>

#include <fstream>

namespace attune {
namespace {

using test::ModuleFolder;
using test::small_base;

std::string text_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string generation_of(const ModuleFolder& folder) {
    const auto module = load_module("m", folder.path(), small_base(), {});
    if (!module) FAIL(module.error().message);
    return (*module)->id.generation;
}

std::string part(const std::string& relative, const std::string& bytes) {
    return relative + '\0' + std::to_string(bytes.size()) + '\0' + bytes;
}

std::string sha256(const std::string& text) {
    Sha256 hash;
    hash.update(text);
    return hash.hex();
}

TEST_CASE_METHOD(ModuleFolder, "a plain folder's generation is the hash of its two files", "[engine][module]") {
    write();
    CHECK(generation_of(*this) ==
          sha256(part("adapter_config.json", text_of(path() / "adapter_config.json")) +
                 part("adapter_model.safetensors", text_of(path() / "adapter_model.safetensors"))));
}

TEST_CASE_METHOD(ModuleFolder, "a package's generation adds what its manifest says of the result", "[engine][module]") {
    write("lora");
    write_text("module_config.json", R"({"name": "x", "format": 1, "version": "2", "order": 20,
        "adapter": {"scale": 0.5, "path": "lora"}, "base": {"vocab_size": 32, "model_type": "llama"},
        "routing": {"tags": ["t"]}})");
    const std::string files =
        part("lora/adapter_config.json", text_of(path() / "lora/adapter_config.json")) +
        part("lora/adapter_model.safetensors", text_of(path() / "lora/adapter_model.safetensors"));
    const std::string generation = generation_of(*this);
    CHECK(
        generation ==
        sha256(files +
               R"({"adapter":{"path":"lora","scale":0.5},"base":{"model_type":"llama","vocab_size":32},"order":20})"));
    // Routing, version and names are not part of the content.
    write_text("module_config.json", R"({"format":1,"name":"y","order":20,"base":{"model_type":"llama","vocab_size":32},
        "adapter":{"path":"lora","scale":0.5},"serving":{"pin":true}})");
    CHECK(generation_of(*this) == generation);
}

TEST_CASE_METHOD(ModuleFolder, "the same content has the same generation in another folder", "[engine][module]") {
    write();
    ModuleFolder copy;
    copy.write();
    CHECK(generation_of(*this) == generation_of(copy));
    copy.tensors.begin()->second.values[0] += 1;
    copy.write();
    CHECK(generation_of(*this) != generation_of(copy));
}

TEST_CASE_METHOD(ModuleFolder, "the order of tensors in the file changes the hash, not the content",
                 "[engine][module]") {
    write();
    const auto before = load_module("m", path(), small_base(), {});
    REQUIRE(before);
    // The same tensors, written in the opposite order of bytes: offsets are what counts, not names.
    nlohmann::json header;
    std::string data;
    for (auto at = tensors.rbegin(); at != tensors.rend(); ++at) {
        const std::size_t begin = data.size();
        data.append(reinterpret_cast<const char*>(at->second.values.data()), at->second.values.size() * 4);
        header[at->first] = {{"dtype", "F32"}, {"shape", at->second.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string json = header.dump();
    const std::uint64_t length = json.size();
    const std::string file = std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
    write_text("adapter_model.safetensors", file);
    const auto after = load_module("m", path(), small_base(), {});
    REQUIRE(after);
    CHECK((*after)->id.generation == sha256(part("adapter_config.json", text_of(path() / "adapter_config.json")) +
                                            part("adapter_model.safetensors", file)));
    for (std::size_t i = 0; i < (*before)->pairs.size(); ++i) {
        CHECK((*after)->pairs[i].a == (*before)->pairs[i].a);
        CHECK((*after)->pairs[i].b == (*before)->pairs[i].b);
    }
}

TEST_CASE_METHOD(ModuleFolder, "a source changes when any file read for effect does", "[engine][module]") {
    write();
    const auto look = [&] {
        const auto header = inspect_module(path(), small_base(), {});
        if (!header) FAIL(header.error().message);
        return header->source;
    };
    const ModuleSource before = look();
    CHECK(look() == before);
    write_text("README.md", "no effect");
    CHECK(look() == before);
    std::filesystem::last_write_time(
        path() / "adapter_config.json",
        std::filesystem::last_write_time(path() / "adapter_config.json") + std::chrono::hours(1));
    const ModuleSource touched = look();
    CHECK_FALSE(touched == before);
    // Replaced by a file of the same size and time: only the inode tells.
    const auto time = std::filesystem::last_write_time(path() / "adapter_model.safetensors");
    std::filesystem::copy(path() / "adapter_model.safetensors", path() / "new");
    std::filesystem::last_write_time(path() / "new", time);
    std::filesystem::rename(path() / "new", path() / "adapter_model.safetensors");
    CHECK_FALSE(look() == touched);
}

TEST_CASE_METHOD(ModuleFolder, "files that change while they are read are an error", "[engine][module]") {
    write();
    const auto opened = [&] {
        auto files = PackageFiles::open(path(), {});
        REQUIRE(files);
        REQUIRE(files->open("adapter_config.json"));
        REQUIRE(files->open("adapter_model.safetensors"));
        REQUIRE(files->check_unchanged());
        return *std::move(files);
    };
    const auto told = [](const PackageFiles& files) {
        const auto same = files.check_unchanged();
        return same ? std::string() : same.error().message;
    };
    PackageFiles grown = opened();
    write_text("adapter_model.safetensors", text_of(path() / "adapter_model.safetensors") + "x");
    CHECK(told(grown) == "adapter_model.safetensors changed while it was read");
    PackageFiles replaced = opened();
    write_text("new", text_of(path() / "adapter_config.json"));
    std::filesystem::rename(path() / "new", path() / "adapter_config.json");
    CHECK(told(replaced) == "adapter_config.json changed while it was read");
    PackageFiles removed = opened();
    std::filesystem::remove(path() / "adapter_config.json");
    CHECK(told(removed) == "adapter_config.json changed while it was read");
    CHECK(removed.check_unchanged().error().code == Errc::unavailable);
}

}  // namespace
}  // namespace attune
