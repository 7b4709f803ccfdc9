#include "engine/module/module_loader.hpp"

#include "attune/settings.hpp"
#include "engine/files/quote.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/adapter_plan.hpp"
#include "engine/module/manifest.hpp"
#include "engine/module/package_files.hpp"
#include "engine/module/peft_config.hpp"
#include "engine/module/text_files.hpp"

#include <map>
#include <optional>
#include <system_error>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 4u << 20;

// All that is known of a module before its weights are read.
struct Package {
    explicit Package(PackageFiles opened) : files(std::move(opened)) {}

    PackageFiles files;
    std::optional<Manifest> manifest;
    std::string config_name;   // "adapter_config.json", below the adapter's folder
    std::string weights_name;  // "adapter_model.safetensors", likewise
    std::vector<std::byte> config_text;
    PeftConfig config;

    std::string prefix() const {
        return config_name.substr(0, config_name.size() - std::string("adapter_config.json").size());
    }
    double scale() const { return manifest ? manifest->adapter_scale : 1.0; }
};

Result<void> refuse_other_forms(const fs::path& path) {
    std::error_code fault;
    if (!fs::is_regular_file(path, fault)) return {};
    const std::string kind = path.extension() == ".gguf"     ? "GGUF modules are"
                             : path.extension() == ".attune" ? "packed modules (.attune) are"
                                                             : "single-file modules are";
    return make_error(Errc::invalid_module, kind + " not supported yet");
}

// The text of the adapter's folder inside the package: "" or "adapter/".
std::string folder_prefix(const std::string& adapter_path) { return adapter_path == "." ? "" : adapter_path + "/"; }

Result<Package> open_package(const fs::path& path, const ModelShape& base, const ModuleLimits& limits) {
    if (auto form = refuse_other_forms(path); !form) return form.error();
    auto files = PackageFiles::open_folder(path, limits);
    if (!files) return files.error();
    Package package(*std::move(files));
    std::string prefix;
    if (package.files.has("module_config.json")) {
        const auto text = package.files.read_text("module_config.json");
        if (!text) return text.error();
        auto manifest = parse_manifest(*text, base, limits.allow_unverified_base);
        if (!manifest) return manifest.error();
        prefix = folder_prefix(manifest->adapter_path);
        if (manifest->adapter_path.ends_with(".gguf"))
            return make_error(Errc::invalid_module, manifest->adapter_path + ": GGUF adapters are not supported yet");
        package.manifest = *std::move(manifest);
    }
    package.config_name = prefix + "adapter_config.json";
    package.weights_name = prefix + "adapter_model.safetensors";
    if (!package.files.has(package.weights_name) && package.files.has(prefix + "adapter_model.bin"))
        return make_error(Errc::invalid_module,
                          "adapter_model.bin is a pickle, which is never opened: save the adapter as safetensors");
    if (!package.files.has(package.config_name) && prefix.empty() && !package.manifest)
        return make_error(Errc::invalid_module, "the folder has neither module_config.json nor adapter_config.json");
    auto text = package.files.read_text(package.config_name);
    if (!text) return text.error();
    auto config = parse_peft_config(*text);
    if (!config) return config.error();
    package.config_text = *std::move(text);
    package.config = *std::move(config);
    return package;
}

std::string base_match(const Package& package) { return package.manifest ? package.manifest->base_match : "shape"; }

ModuleHeader describe(const Package& package, const SafetensorsHeader& header, const AdapterPlan& plan) {
    ModuleHeader out;
    out.source = package.files.source();
    out.kind = plan.kind;
    out.max_rank = plan.max_rank;
    out.targets = plan.targets;
    out.parsed_bytes = plan.parsed_bytes;
    out.file_bytes = header.file_bytes + package.config_text.size();
    out.base_match = base_match(package);
    if (package.manifest) {
        const Manifest& manifest = *package.manifest;
        out.name = manifest.name;
        out.version = manifest.version;
        out.description = manifest.description;
        out.license = manifest.license;
        out.routing = manifest.routing;
        out.cold = manifest.cold;
        out.pin = manifest.pin;
        out.owner = manifest.owner;
    }
    return out;
}

using TextFiles = std::map<std::string, std::vector<std::byte>>;

std::uint64_t bytes_of(const TextFiles& files) {
    std::uint64_t bytes = 0;
    for (const auto& [name, content] : files) bytes += content.size();
    return bytes;
}

void hash_files(GenerationHash& hash, TextFiles::const_iterator from, TextFiles::const_iterator end) {
    for (; from != end; ++from) {
        hash.begin_file(from->first, from->second.size());
        hash.update(from->second);
    }
}

Result<std::shared_ptr<const ModuleText>> make_text(const TemplateSource& source, const ModuleLimits& limits) {
    if (!limits.make_template)
        return make_error(Errc::invalid_module, "a module with its own chat template needs a base with a tokenizer");
    auto made = limits.make_template(source);
    if (!made) return make_error(Errc::invalid_module, "the module's own template: " + made.error().message);
    return std::shared_ptr<const ModuleText>(std::make_shared<ModuleText>(ModuleText{source, *std::move(made)}));
}

Result<ModulePtr> read_module(const std::string& name, Package& package, const ModelShape& base,
                              const ModuleLimits& limits) {
    const auto own = read_own_template(package.files, package.prefix(), limits.base_folder);
    if (!own) return own.error();
    std::shared_ptr<const ModuleText> text;
    if (own->source) {
        auto made = make_text(*own->source, limits);
        if (!made) return made.error();
        text = *std::move(made);
    }
    GenerationHash hash;
    const auto after = own->files.lower_bound(package.config_name);
    hash_files(hash, own->files.begin(), after);
    // "adapter_config.json" comes before "adapter_model.safetensors" in byte order, whatever folder both are in.
    hash.begin_file(package.config_name, package.config_text.size());
    hash.update(package.config_text);
    const auto file = package.files.open(package.weights_name);
    if (!file) return file.error();
    hash.begin_file(package.weights_name, file->size());
    const auto header =
        read_safetensors_header(*file, kMaxHeaderBytes, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    if (!header) return header.error();
    const BaseValues* values = limits.base_values.get();
    const auto plan = plan_adapter(*header, package.config, base, limits.max_rank, values);
    if (!plan) return plan.error();
    auto module = std::make_shared<Module>();
    if (auto read = read_adapter(*file, *header, *plan, values, hash, *module); !read) return read.error();
    if (auto scaled = scale_module(*module, package.scale()); !scaled)
        return make_error(scaled.error().code, "module_config.json: " + scaled.error().message);
    hash_files(hash, after, own->files.end());
    module->id = {name, hash.finish(package.manifest ? package.manifest->hashed_json : "")};
    module->kind = plan->kind;
    module->base_match = base_match(package);
    module->unverified = module->base_match == "unverified";
    module->text = std::move(text);
    module->host_bytes = host_bytes(*module) + bytes_of(own->files);
    return ModulePtr(std::move(module));
}

}  // namespace

ModuleLimits module_limits(const Settings& settings) {
    ModuleLimits limits;
    limits.max_rank = settings.modules.max_rank;
    limits.package_bytes = settings.limits.package_bytes;
    limits.package_files = settings.limits.package_files;
    limits.allow_unverified_base = settings.modules.allow_unverified_base;
    limits.base_folder = settings.model.path;
    return limits;
}

Result<ModuleHeader> inspect_module(const fs::path& path, const ModelShape& base, const ModuleLimits& limits) {
    auto package = open_package(path, base, limits);
    if (!package) return package.error();
    const auto file = package->files.open(package->weights_name);
    if (!file) return file.error();
    const auto header = read_safetensors_header(*file, kMaxHeaderBytes);
    if (!header) return header.error();
    const auto plan = plan_adapter(*header, package->config, base, limits.max_rank, limits.base_values.get());
    if (!plan) return plan.error();
    const auto own = read_own_template(package->files, package->prefix(), limits.base_folder);
    if (!own) return own.error();
    ModuleHeader described = describe(*package, *header, *plan);
    described.own_template = own->source.has_value();
    described.parsed_bytes += bytes_of(own->files);
    described.file_bytes += bytes_of(own->files);
    return described;
}

Result<ModulePtr> load_module(const std::string& name, const fs::path& path, const ModelShape& base,
                              const ModuleLimits& limits) {
    auto package = open_package(path, base, limits);
    if (!package) return package.error();
    const auto added = own_added_tokens(package->files, package->prefix(), limits.base_folder);
    if (!added) return added.error();
    auto module = read_module(name, *package, base, limits);
    if (module)
        if (auto rows = check_token_rows(*added, **module); !rows) module = rows.error();
    // First of all faults: half-written files look broken in every other way too.
    if (auto same = package->files.check_unchanged(); !same) return same.error();
    return module;
}

}  // namespace attune
