#include "engine/module/convert_module.hpp"

#include "engine/files/quote.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/json_text.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <sstream>
#include <system_error>

namespace attune {
namespace {

namespace fs = std::filesystem;
using Json = OrderedJson;

constexpr std::uint64_t kMaxManifestBytes = 1u << 20;

Error refuse(const std::string& fault) { return make_error(Errc::invalid_argument, fault); }

/// What the loader reads of an adapter's folder, and what tells a reader more about it.
constexpr const char* kPeftFiles[] = {
    "adapter_config.json",   "adapter_model.safetensors", "chat_template.jinja",     "tokenizer.json",
    "tokenizer_config.json", "added_tokens.json",         "special_tokens_map.json", "README.md"};

/// Fills a folder beside `out` by `fill` and gives it its name only when all went well.
Result<void> make_folder(const fs::path& out, const std::function<Result<void>(const fs::path&)>& fill) {
    std::error_code fault;
    if (fs::exists(out, fault)) return refuse(out.filename().string() + " exists already");
    const fs::path part = out.string() + ".part";
    fs::remove_all(part, fault);
    auto made = fs::create_directories(part, fault)
                    ? Result<void>()
                    : make_error(Errc::io, part.filename().string() + " cannot be made");
    if (made) made = fill(part);
    if (made) {
        fs::rename(part, out, fault);
        if (fault) made = make_error(Errc::io, out.filename().string() + " cannot be made: " + fault.message());
    }
    if (!made) fs::remove_all(part, fault);
    return made;
}

Result<void> copy_one(const fs::path& from, const fs::path& to) {
    std::error_code fault;
    fs::create_directories(to.parent_path(), fault);
    if (!fs::copy_file(from, to, fault) || fault)
        return make_error(Errc::io, from.filename().string() + " cannot be copied: " + fault.message());
    return {};
}

Result<void> copy_peft(const fs::path& from, const fs::path& to) {
    std::error_code fault;
    if (!fs::exists(from / "adapter_config.json", fault) || !fs::exists(from / "adapter_model.safetensors", fault))
        return refuse("the adapter's folder needs adapter_config.json and adapter_model.safetensors");
    for (const char* name : kPeftFiles)
        if (fs::is_regular_file(from / name, fault))
            if (auto copied = copy_one(from / name, to / name); !copied) return copied;
    return {};
}

/// "3,5,7" is a list; "12-19" and "middle:8" stay words, which the manifest knows.
Result<Json> layers_json(const std::string& text) {
    if (text.find_first_of("-:") != std::string::npos) return Json(text);
    Json list = Json::array();
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        int layer = 0;
        const auto [end, fault] = std::from_chars(part.data(), part.data() + part.size(), layer);
        if (fault != std::errc() || end != part.data() + part.size())
            return refuse("layers " + in_quotes(text) + " is no range and no list of numbers");
        list.push_back(layer);
    }
    if (list.empty()) return refuse("the state's layers are not given");
    return list;
}

Result<Json> state_json(const PackageDescription& description) {
    if (description.state_kind.empty()) return refuse("the state's kind is not given");
    auto layers = layers_json(description.state_layers);
    if (!layers) return layers;
    Json state = {{"path", "state.safetensors"}, {"kind", description.state_kind}, {"layers", *layers}};
    if (description.state_scales.size() == 1) state["scale"] = description.state_scales[0];
    if (description.state_scales.size() > 1) state["scale"] = description.state_scales;
    if (!description.state_activation.empty()) state["activation"] = description.state_activation;
    return state;
}

Json base_json(const ModelShape& base) {
    Json json = {{"model_type", base.model_type},
                 {"hidden_size", base.hidden_size},
                 {"num_hidden_layers", base.layer_count()},
                 {"vocab_size", base.vocab_size}};
    if (!base.checkpoint.empty()) json["checkpoint"] = base.checkpoint;
    return json;
}

Result<Json> manifest_json(const std::string& adapter_path, const PackageDescription& description,
                           const ModelShape* base) {
    if (description.name.empty()) return refuse("the package's name is not given");
    Json json = {{"format", 1}, {"name", description.name}};
    for (const auto& [key, value] : {std::pair{"version", &description.version},
                                     {"description", &description.description},
                                     {"license", &description.license}})
        if (!value->empty()) json[key] = *value;
    if (base != nullptr) json["base"] = base_json(*base);
    if (!adapter_path.empty()) json["adapter"] = {{"path", adapter_path}, {"scale", description.adapter_scale}};
    if (!description.state.empty()) {
        auto state = state_json(description);
        if (!state) return state;
        json["state"] = *std::move(state);
        if (base == nullptr || base->checkpoint.empty())
            return refuse("a state is made for one base alone: its checkpoint must be known");
    }
    if (description.order != 0) json["order"] = description.order;
    if (!description.needs.empty()) json["requires"] = description.needs;
    return json;
}

}  // namespace

Result<void> make_package(const fs::path& adapter, const PackageDescription& description, const ModelShape* base,
                          const fs::path& out) {
    if (adapter.empty() && description.state.empty()) return refuse("a package needs an adapter or a state");
    const bool gguf = adapter.extension() == ".gguf";
    const auto manifest = manifest_json(adapter.empty() ? "" : gguf ? "adapter.gguf" : "adapter", description, base);
    if (!manifest) return manifest.error();
    return make_folder(out, [&](const fs::path& folder) -> Result<void> {
        if (!adapter.empty()) {
            auto copied = gguf ? copy_one(adapter, folder / "adapter.gguf") : copy_peft(adapter, folder / "adapter");
            if (!copied) return copied;
        }
        if (!description.state.empty())
            if (auto copied = copy_one(description.state, folder / "state.safetensors"); !copied) return copied;
        std::ofstream file(folder / "module_config.json");
        file << manifest->dump(1) << "\n";
        file.close();
        return file ? Result<void>() : make_error(Errc::io, "module_config.json cannot be written");
    });
}

Result<void> extract_peft(const fs::path& package, const fs::path& out) {
    const auto text = read_file(package / "module_config.json", kMaxManifestBytes);
    if (!text) return refuse("the package has no module_config.json");
    const auto manifest = parse_json_object(*text, "module_config.json");
    if (!manifest) return manifest.error();
    const Json& path = member(member(*manifest, "adapter"), "path");
    if (!path.is_string()) return refuse("the package has no adapter part");
    if (!is_empty(member(*manifest, "state")))
        return refuse("the package has a state, which a PEFT folder cannot hold");
    if (member(member(*manifest, "adapter"), "scale") != 1.0 &&
        !member(member(*manifest, "adapter"), "scale").is_null())
        return refuse("adapter.scale is not 1, which a PEFT folder cannot say");
    const fs::path adapter = fs::path(path.get<std::string>()).lexically_normal();
    if (adapter.is_absolute() || adapter.generic_string().starts_with(".."))
        return refuse("adapter.path leaves the package");
    if (adapter.extension() == ".gguf") return refuse("the package's adapter is in GGUF");
    return make_folder(out, [&](const fs::path& folder) { return copy_peft(package / adapter, folder); });
}

}  // namespace attune
