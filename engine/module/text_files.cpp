#include "engine/module/text_files.hpp"

#include "engine/files/safetensors.hpp"
#include "engine/module/json_text.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 8u << 20;
constexpr std::uint64_t kMaxTemplateBytes = 1u << 20;

// Slice by slice: a tokenizer of 20 MB must not be held twice.
bool same_bytes(const fs::path& left, const fs::path& right) {
    const auto a = ReadOnlyFile::open(left);
    const auto b = ReadOnlyFile::open(right);
    if (!a || !b || a->size() != b->size()) return false;
    std::vector<std::byte> bytes_a(1 << 16);
    std::vector<std::byte> bytes_b(1 << 16);
    for (std::uint64_t at = 0; at < a->size(); at += bytes_a.size()) {
        const std::size_t count = std::min<std::uint64_t>(bytes_a.size(), a->size() - at);
        const std::span<std::byte> from_a(bytes_a.data(), count);
        const std::span<std::byte> from_b(bytes_b.data(), count);
        if (!a->read(at, from_a) || !b->read(at, from_b) || !std::equal(from_a.begin(), from_a.end(), from_b.begin()))
            return false;
    }
    return true;
}

// The template inside a tokenizer_config.json; null when there is none or it cannot be read.
OrderedJson config_template(const fs::path& config) {
    const auto bytes = read_file(config, kMaxConfigBytes);
    if (!bytes) return {};
    const auto json = parse_json_object(*bytes, "tokenizer_config.json");
    return json ? member(*json, "chat_template") : OrderedJson();
}

// The base's template, wherever it keeps it.
OrderedJson base_template(const fs::path& folder) {
    if (const auto bytes = read_file(folder / "chat_template.jinja", kMaxTemplateBytes))
        return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    return config_template(folder / "tokenizer_config.json");
}

Result<void> check_template(const fs::path& file, const fs::path& base_folder, const std::string& name) {
    const bool known_base = !base_folder.empty();
    if (known_base && same_bytes(file, base_folder / name)) return {};
    OrderedJson own;
    if (name == "tokenizer_config.json") {
        own = config_template(file);
        if (own.is_null()) return {};  // says nothing that the tokenizer's file does not say
    } else if (const auto bytes = read_file(file, kMaxTemplateBytes)) {
        own = std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    }
    if (known_base && own == base_template(base_folder)) return {};
    return make_error(Errc::invalid_module, name + ": a module with its own chat template is not supported yet");
}

}  // namespace

Result<void> check_text_files(const PackageFiles& files, const fs::path& folder, const fs::path& base_folder) {
    const auto relative = [&](const char* name) { return (folder / name).generic_string(); };
    const bool fast = files.has(relative("tokenizer.json"));
    for (const char* name :
         {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json"}) {
        // The other files only feed tokenizer.json, which decides where it is there.
        if (!files.has(relative(name)) || (fast && std::string(name) != "tokenizer.json")) continue;
        const auto file = files.resolve(relative(name));
        if (!file) return file.error();
        if (base_folder.empty() || !same_bytes(*file, base_folder / name))
            return make_error(Errc::invalid_module,
                              std::string(name) + ": a module with its own tokenizer is not supported yet");
    }
    for (const char* name : {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"}) {
        if (!files.has(relative(name))) continue;
        const auto file = files.resolve(relative(name));
        if (!file) return file.error();
        if (auto same = check_template(*file, base_folder, name); !same) return same.error();
    }
    return {};
}

}  // namespace attune
