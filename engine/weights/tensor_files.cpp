#include "engine/weights/tensor_files.hpp"

#include "engine/files/gguf.hpp"
#include "engine/files/model_path.hpp"

#include <nlohmann/json.hpp>

#include <set>

namespace attune {

namespace {

using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
// Two hundred thousand tensors with long names stay below it.
constexpr std::uint64_t kMaxIndexBytes = 64u << 20;

Error bad_index(const std::string& what) {
    return make_error(Errc::invalid_argument, std::string(kIndex) + ": " + what);
}

Result<void> add_file(const std::filesystem::path& path, std::map<std::string, SourceTensor>& tensors) {
    auto header = read_safetensors_header(path);
    if (!header) return header.error();
    auto opened = ReadOnlyFile::open(path);
    if (!opened) return opened.error();
    const auto file = std::make_shared<const ReadOnlyFile>(std::move(*opened));
    for (StoredTensor& stored : header->tensors) {
        const std::string name = stored.name;
        if (!tensors.emplace(name, SourceTensor{std::move(stored), file, 0}).second)
            return make_error(Errc::invalid_argument, "tensor \"" + name + "\" lies in two files");
    }
    return {};
}

Result<std::map<std::string, SourceTensor>> open_gguf(const std::filesystem::path& path) {
    auto opened = ReadOnlyFile::open(path);
    if (!opened) return opened.error();
    const auto file = std::make_shared<const ReadOnlyFile>(std::move(*opened));
    auto header = read_gguf_header(*file);
    if (!header) return header.error();
    std::map<std::string, SourceTensor> tensors;
    for (StoredTensor& stored : header->tensors) {
        const std::string name = stored.name;
        tensors.emplace(name, SourceTensor{std::move(stored), file, 0});
    }
    return tensors;
}

/// tensor name -> shard file name
Result<std::map<std::string, std::string>> read_index(const std::filesystem::path& path) {
    auto bytes = read_file(path, kMaxIndexBytes);
    if (!bytes) return bytes.error();
    const auto* text = reinterpret_cast<const char*>(bytes->data());
    const Json index = Json::parse(text, text + bytes->size(), nullptr, /*allow_exceptions=*/false);
    if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object())
        return bad_index("no \"weight_map\"");
    std::map<std::string, std::string> map;
    for (const auto& [name, file] : index.at("weight_map").items()) {
        if (!file.is_string()) return bad_index("\"" + name + "\" names no file");
        const auto shard = file.get<std::string>();
        // A shard lies beside its index: a name with a folder in it would read from elsewhere.
        if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of("/\\") != std::string::npos)
            return bad_index("\"" + name + "\" names the file \"" + shard + "\", which is not a plain file name");
        map.emplace(name, shard);
    }
    if (map.empty()) return bad_index("\"weight_map\" is empty");
    return map;
}

Result<void> add_shards(const std::filesystem::path& folder, std::map<std::string, SourceTensor>& tensors) {
    auto index = read_index(folder / kIndex);
    if (!index) return index.error();
    std::set<std::string> shards;
    for (const auto& [name, shard] : *index) shards.insert(shard);
    std::map<std::string, std::string> found;
    for (const std::string& shard : shards) {
        std::map<std::string, SourceTensor> part;
        if (auto ok = add_file(folder / shard, part); !ok) return ok.error();
        for (auto& [name, tensor] : part) {
            const auto place = index->find(name);
            if (place == index->end()) return bad_index("tensor \"" + name + "\" of " + shard + " is not listed");
            if (place->second != shard)
                return bad_index("tensor \"" + name + "\" lies in " + shard + ", not in " + place->second);
            tensors.emplace(name, std::move(tensor));
        }
    }
    for (const auto& [name, shard] : *index) {
        if (!tensors.contains(name)) return bad_index("tensor \"" + name + "\" is not in " + shard);
    }
    return {};
}

}  // namespace

Result<std::map<std::string, SourceTensor>> open_tensor_files(const std::filesystem::path& model) {
    if (is_gguf_file(model)) return open_gguf(model);
    std::map<std::string, SourceTensor> tensors;
    std::error_code ignored;
    // As transformers: the single file wins where both are there.
    if (std::filesystem::exists(model / kSingle, ignored)) {
        if (auto ok = add_file(model / kSingle, tensors); !ok) return ok.error();
    } else if (std::filesystem::exists(model / kIndex, ignored)) {
        if (auto ok = add_shards(model, tensors); !ok) return ok.error();
    } else {
        return make_error(Errc::io, std::string("the model folder has neither ") + kSingle + " nor " + kIndex);
    }
    return tensors;
}

}  // namespace attune
