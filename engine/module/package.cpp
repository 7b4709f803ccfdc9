#include "engine/module/package.hpp"

#include "engine/files/quote.hpp"

#include <utility>

namespace attune {
namespace {

constexpr const char* kManifest = "module_config.json";

Result<Package::Peft> open_peft(PackageFiles& files, const std::string& prefix) {
    Package::Peft peft;
    peft.config_name = prefix + "adapter_config.json";
    peft.weights_name = prefix + "adapter_model.safetensors";
    if (!files.has(peft.weights_name) && files.has(prefix + "adapter_model.bin"))
        return make_error(Errc::invalid_module,
                          "adapter_model.bin is a pickle, which is never opened: save the adapter as safetensors");
    auto text = files.read_text(peft.config_name);
    if (!text) return text.error();
    auto config = parse_peft_config(*text);
    if (!config) return config.error();
    peft.config_text = *std::move(text);
    peft.config = *std::move(config);
    return peft;
}

Result<void> open_adapter(Package& package, const std::string& path) {
    if (path.ends_with(".gguf")) {
        package.gguf_name = path;
        return {};
    }
    package.prefix = path == "." ? "" : path + "/";
    auto peft = open_peft(package.files, package.prefix);
    if (!peft) return peft.error();
    package.peft = *std::move(peft);
    return {};
}

}  // namespace

Result<Package> open_package(const std::filesystem::path& path, const ModelShape& base, const ModuleLimits& limits) {
    auto files = PackageFiles::open(path, limits);
    if (!files) return files.error();
    Package package(*std::move(files));
    if (const std::string single = package.files.single(); !single.empty()) {
        if (!single.ends_with(".gguf"))
            return make_error(Errc::invalid_module, "a module is a folder, a .attune or a .gguf file");
        package.gguf_name = single;
        return package;
    }
    if (!package.files.has(kManifest)) {
        if (!package.files.has("adapter_config.json") && !package.files.has("adapter_model.bin"))
            return make_error(Errc::invalid_module,
                              "the module has neither module_config.json nor adapter_config.json");
        if (auto adapter = open_adapter(package, "."); !adapter) return adapter.error();
        return package;
    }
    const auto text = package.files.read_text(kManifest);
    if (!text) return text.error();
    auto manifest = parse_manifest(*text, base, limits.allow_unverified_base);
    if (!manifest) return manifest.error();
    package.manifest = *std::move(manifest);
    if (!package.manifest->adapter_path.empty())
        if (auto adapter = open_adapter(package, package.manifest->adapter_path); !adapter) return adapter.error();
    return package;
}

}  // namespace attune
