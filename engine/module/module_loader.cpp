#include "engine/module/module_loader.hpp"

#include "attune/settings.hpp"
#include "engine/files/quote.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/lora_plan.hpp"
#include "engine/module/manifest.hpp"
#include "engine/module/package_files.hpp"
#include "engine/module/peft_config.hpp"
#include "engine/module/text_files.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSliceBytes = 256u << 10;  // staging while weights are read, hashed and converted
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

std::uint64_t parsed_bytes(const std::vector<PlannedPair>& plan, const ModelShape& base) {
    std::uint64_t bytes = plan.size() * sizeof(LowRankPair);
    for (const PlannedPair& pair : plan)
        bytes += sizeof(float) * static_cast<std::uint64_t>(pair.rank) *
                 static_cast<std::uint64_t>(base.in_features(pair.projection) + base.out_features(pair.projection));
    return bytes;
}

int largest_rank(const std::vector<PlannedPair>& plan) {
    int rank = 0;
    for (const PlannedPair& pair : plan) rank = std::max(rank, pair.rank);
    return rank;
}

std::string base_match(const Package& package) { return package.manifest ? package.manifest->base_match : "shape"; }

ModuleHeader describe(const Package& package, const SafetensorsHeader& header, const std::vector<PlannedPair>& plan,
                      const ModelShape& base) {
    ModuleHeader out;
    out.source = package.files.source();
    out.kind = "lora";
    out.max_rank = largest_rank(plan);
    for (int i = 0; i < kProjections; ++i) {
        const auto projection = static_cast<Projection>(i);
        if (std::any_of(plan.begin(), plan.end(),
                        [&](const PlannedPair& pair) { return pair.projection == projection; }))
            out.targets.emplace_back(projection_name(projection));
    }
    out.parsed_bytes = parsed_bytes(plan, base);
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

// Infinities and NaN have all exponent bits set. Without branches, so that the loop runs over vectors.
bool all_finite(std::span<const float> values) {
    std::uint32_t found = 0;
    for (const float value : values)
        found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U);
    return found == 0;
}

// One tensor: read, hashed and converted slice by slice, so that no second copy of the file is ever in memory.
Result<void> read_tensor(const ReadOnlyFile& file, const StoredTensor& tensor, std::span<float> into,
                         std::vector<std::byte>& slice, GenerationHash& hash) {
    const std::size_t element_bytes = tensor.bytes / into.size();
    std::uint64_t at = tensor.begin;
    while (!into.empty()) {
        const std::size_t count = std::min(into.size(), slice.size() / element_bytes);
        const std::span<std::byte> bytes(slice.data(), count * element_bytes);
        if (auto read = file.read(at, bytes); !read) return read.error();
        hash.update(bytes);
        convert_to_f32(tensor.type, bytes.data(), into.data(), count);  // plan_lora let only such types pass
        if (!all_finite(into.first(count)))
            return make_error(Errc::invalid_module,
                              file.name() + ": tensor " + in_quotes(tensor.name) + " holds a value that is not finite");
        at += bytes.size();
        into = into.subspan(count);
    }
    return {};
}

Result<std::vector<LowRankPair>> read_pairs(const ReadOnlyFile& file, const std::vector<PlannedPair>& plan,
                                            const ModelShape& base, double scale, GenerationHash& hash) {
    std::vector<LowRankPair> pairs;
    pairs.reserve(plan.size());
    struct Read {
        const StoredTensor* tensor;
        std::span<float> into;
    };
    std::vector<Read> reads;
    for (const PlannedPair& planned : plan) {
        LowRankPair& pair = pairs.emplace_back();
        pair.layer = planned.layer;
        pair.projection = planned.projection;
        pair.rank = planned.rank;
        pair.scale = static_cast<float>(planned.scale * scale);
        if (!std::isfinite(pair.scale))
            return make_error(Errc::invalid_module,
                              "module_config.json: adapter.scale makes a scale that is not finite");
        const auto rank = static_cast<std::size_t>(planned.rank);
        pair.a.resize(rank * static_cast<std::size_t>(base.in_features(planned.projection)));
        pair.b.resize(rank * static_cast<std::size_t>(base.out_features(planned.projection)));
        reads.push_back({planned.a, pair.a});
        reads.push_back({planned.b, pair.b});
    }
    // In the order of the file: the hash is of the file's bytes, each read once.
    std::sort(reads.begin(), reads.end(),
              [](const Read& x, const Read& y) { return x.tensor->begin < y.tensor->begin; });
    std::vector<std::byte> slice(kSliceBytes);
    for (const Read& read : reads)
        if (auto done = read_tensor(file, *read.tensor, read.into, slice, hash); !done) return done.error();
    return pairs;
}

std::uint64_t host_bytes(const std::vector<LowRankPair>& pairs) {
    std::uint64_t bytes = pairs.capacity() * sizeof(LowRankPair);
    for (const LowRankPair& pair : pairs) bytes += (pair.a.capacity() + pair.b.capacity()) * sizeof(float);
    return bytes;
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
    const auto plan = plan_lora(*header, package.config, base, limits.max_rank);
    if (!plan) return plan.error();
    auto pairs = read_pairs(*file, *plan, base, package.scale(), hash);
    if (!pairs) return pairs.error();
    hash_files(hash, after, own->files.end());

    auto module = std::make_shared<Module>();
    module->id = {name, hash.finish(package.manifest ? package.manifest->hashed_json : "")};
    module->kind = "lora";
    module->max_rank = largest_rank(*plan);
    module->base_match = base_match(package);
    module->unverified = module->base_match == "unverified";
    module->pairs = *std::move(pairs);
    module->text = std::move(text);
    module->host_bytes = host_bytes(module->pairs) + bytes_of(own->files);
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
    const auto plan = plan_lora(*header, package->config, base, limits.max_rank);
    if (!plan) return plan.error();
    const auto own = read_own_template(package->files, package->prefix(), limits.base_folder);
    if (!own) return own.error();
    ModuleHeader described = describe(*package, *header, *plan, base);
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
