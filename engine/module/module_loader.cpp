#include "engine/module/module_loader.hpp"

#include "attune/settings.hpp"
#include "engine/files/gguf.hpp"
#include "engine/files/hash.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/adapter_plan.hpp"
#include "engine/module/gguf_part.hpp"
#include "engine/module/hotswap.hpp"
#include "engine/module/package.hpp"
#include "engine/module/state_part.hpp"
#include "engine/module/text_files.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 4u << 20;

using TextFiles = std::map<std::string, std::vector<std::byte>>;

std::uint64_t bytes_of(const TextFiles& files) {
    std::uint64_t bytes = 0;
    for (const auto& [name, content] : files) bytes += content.size();
    return bytes;
}

// "lora", "state", "lora+state"
void add_kind(std::string& kinds, const std::string& kind) { kinds += (kinds.empty() ? "" : "+") + kind; }

std::string base_match(const Package& package, const std::string& kind) {
    if (package.manifest) return package.manifest->base_match;
    // Nothing in the file says which base it was made for, and a width fits many.
    return kind == "control_vector" ? "unverified" : "shape";
}

std::vector<std::string> keys_of(const SafetensorsHeader& header) {
    std::vector<std::string> keys;
    for (const StoredTensor& tensor : header.tensors) keys.push_back(tensor.name);
    return keys;
}

/// What PEFT could swap is a LoRA by itself; everything else has a name that no other type has.
std::shared_ptr<const SwapFacts> swap_facts_of(const Package& package, const std::string& kind, SwapFacts found) {
    const bool has_state = package.manifest && package.manifest->state;
    if (!package.peft || has_state) {
        found.peft_type = (package.gguf_name.empty() ? "" : "gguf_") + kind;
        for (char& letter : found.peft_type)
            if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
    }
    return std::make_shared<const SwapFacts>(std::move(found));
}

// ---- a look

template <class Plan>
void add_plan(const Plan& plan, ModuleHeader& out) {
    add_kind(out.kind, plan.kind);
    out.max_rank = plan.max_rank;
    out.targets = plan.targets;
    out.parsed_bytes += plan.parsed_bytes;
}

Result<void> look_at_peft(Package& package, const ModelShape& base, const ModuleLimits& limits, ModuleHeader& out) {
    const auto file = package.files.open(package.peft->weights_name);
    if (!file) return file.error();
    const auto header = read_safetensors_header(*file, kMaxHeaderBytes);
    if (!header) return header.error();
    const auto plan = plan_adapter(*header, package.peft->config, base, limits.max_rank, limits.base_values.get());
    if (!plan) return plan.error();
    add_plan(*plan, out);
    if (limits.swap_facts) out.parsed_bytes += 2 * swap_facts(package.peft->config_text, keys_of(*header)).bytes();
    out.file_bytes += header->file_bytes + package.peft->config_text.size();
    return {};
}

Result<void> look_at_gguf(Package& package, const ModelShape& base, const ModuleLimits& limits, ModuleHeader& out) {
    const auto file = package.files.open(package.gguf_name);
    if (!file) return file.error();
    const auto header = read_gguf_header(*file, kMaxHeaderBytes);
    if (!header) return header.error();
    const auto plan = plan_gguf(*header, base, limits.max_rank);
    if (!plan) return plan.error();
    add_plan(*plan, out);
    out.file_bytes += file->size();
    return {};
}

Result<void> look_at_state(Package& package, const ModelShape& base, ModuleHeader& out) {
    const StateConfig& config = *package.manifest->state;
    const auto file = package.files.open(config.path);
    if (!file) return file.error();
    const auto header = read_safetensors_header(*file, kMaxHeaderBytes);
    if (!header) return header.error();
    const auto plan = plan_state(*header, config, base);
    if (!plan) return plan.error();
    add_kind(out.kind, "state");
    out.parsed_bytes += plan->parsed_bytes;
    out.file_bytes += header->file_bytes;
    return {};
}

void add_manifest(const Manifest& manifest, ModuleHeader& out) {
    out.name = manifest.name;
    out.version = manifest.version;
    out.description = manifest.description;
    out.license = manifest.license;
    out.order = manifest.order;
    out.needs = manifest.needs;
    out.members = manifest.members;
    out.combine = manifest.combine;
    out.routing = manifest.routing;
    out.cold = manifest.cold;
    out.pin = manifest.pin;
    out.owner = manifest.owner;
}

// ---- a load

/// The tokenizer first: a template may name its tokens. Null when both are the base's.
Result<ModuleTextPtr> make_text(const OwnTemplate& own, const OwnTokens& tokens, int vocab_size,
                                const ModuleLimits& limits) {
    if (!own.source && tokens.added.empty()) return ModuleTextPtr();
    ModuleText text;
    text.vocab_size = vocab_size;
    if (!tokens.added.empty()) {
        if (!limits.make_tokenizer)
            return make_error(Errc::invalid_module, "a module with its own tokenizer needs a base with a tokenizer");
        auto made = limits.make_tokenizer(tokens.added);
        if (!made) return make_error(Errc::invalid_module, "the module's own tokenizer: " + made.error().message);
        text.added = tokens.added;
        text.tokenizer = *std::move(made);
    }
    if (own.source) {
        if (!limits.make_template)
            return make_error(Errc::invalid_module,
                              "a module with its own chat template needs a base with a tokenizer");
        auto made = limits.make_template(*own.source, text.tokenizer.get());
        if (!made) return make_error(Errc::invalid_module, "the module's own template: " + made.error().message);
        text.source = *own.source;
        text.chat_template = *std::move(made);
    }
    return ModuleTextPtr(std::make_shared<ModuleText>(std::move(text)));
}

// One file that is read for effect; its bytes go into the hash as they pass.
using ReadPart = std::function<Result<void>(GenerationHash& hash)>;

ReadPart text_part(const std::string& name, const std::vector<std::byte>& content) {
    return [&](GenerationHash& hash) -> Result<void> {
        hash.begin_file(name, content.size());
        hash.update(content);
        return {};
    };
}

/// A tokenizer file of the module's own: its bytes must be those that were compared with the base's.
Result<void> hash_tokenizer(Package& package, const std::string& name, const std::string& sha256,
                            GenerationHash& hash) {
    const auto file = package.files.open(name);
    if (!file) return file.error();
    hash.begin_file(name, file->size());
    Sha256 own;
    std::vector<std::byte> slice(std::min<std::uint64_t>(file->size(), 64u << 10));
    for (std::uint64_t at = 0; at < file->size(); at += slice.size()) {
        const std::span<std::byte> some(slice.data(), std::min<std::uint64_t>(slice.size(), file->size() - at));
        if (auto read = file->read(at, some); !read) return make_error(Errc::io, name + " cannot be read");
        hash.update(some);
        own.update(some);
    }
    if (own.hex() != sha256) return make_error(Errc::unavailable, name + " changed while it was read");
    return {};
}

Result<void> read_peft(Package& package, const ModelShape& base, const ModuleLimits& limits, GenerationHash& hash,
                       Module& into) {
    const auto file = package.files.open(package.peft->weights_name);
    if (!file) return file.error();
    hash.begin_file(package.peft->weights_name, file->size());
    const auto header =
        read_safetensors_header(*file, kMaxHeaderBytes, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    if (!header) return header.error();
    const BaseValues* values = limits.base_values.get();
    const auto plan = plan_adapter(*header, package.peft->config, base, limits.max_rank, values);
    if (!plan) return plan.error();
    into.kind = plan->kind;
    if (limits.swap_facts)
        into.swap = std::make_shared<const SwapFacts>(swap_facts(package.peft->config_text, keys_of(*header)));
    return read_adapter(*file, *header, *plan, values, hash, into);
}

Result<void> read_gguf(Package& package, const ModelShape& base, const ModuleLimits& limits, GenerationHash& hash,
                       Module& into) {
    const auto file = package.files.open(package.gguf_name);
    if (!file) return file.error();
    hash.begin_file(package.gguf_name, file->size());
    std::uint64_t seen = 0;
    const auto header = read_gguf_header(*file, kMaxHeaderBytes, [&](std::span<const std::byte> bytes) {
        hash.update(bytes);
        seen += bytes.size();
    });
    if (!header) return header.error();
    const auto plan = plan_gguf(*header, base, limits.max_rank);
    if (!plan) return plan.error();
    into.kind = plan->kind;
    return read_gguf_module(*file, *header, seen, *plan, hash, into);
}

Result<void> read_state_file(Package& package, const ModelShape& base, GenerationHash& hash, Module& into) {
    const StateConfig& config = *package.manifest->state;
    const auto file = package.files.open(config.path);
    if (!file) return file.error();
    hash.begin_file(config.path, file->size());
    const auto header =
        read_safetensors_header(*file, kMaxHeaderBytes, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    if (!header) return header.error();
    const auto plan = plan_state(*header, config, base);
    if (!plan) return plan.error();
    return read_state(*file, *header, *plan, hash, into);
}

Result<ModulePtr> read_module(const std::string& name, Package& package, const ModelShape& base,
                              const ModuleLimits& limits) {
    const auto own = read_own_template(package.files, package.prefix, limits.base_folder);
    if (!own) return own.error();
    const auto tokens = read_own_tokens(package.files, package.prefix, limits.base_folder);
    if (!tokens) return tokens.error();
    Module adapter;  // scaled before the state joins it, which has scales of its own
    Module state;
    std::map<std::string, ReadPart> parts;  // by path: the order in which a generation is hashed
    for (const auto& [path, sha256] : tokens->files)
        parts[path] = [&package, &path = path, &sha256 = sha256](GenerationHash& hash) {
            return hash_tokenizer(package, path, sha256, hash);
        };
    for (const auto& [path, content] : own->files) parts[path] = text_part(path, content);
    if (package.peft) {
        parts[package.peft->config_name] = text_part(package.peft->config_name, package.peft->config_text);
        parts[package.peft->weights_name] = [&](GenerationHash& hash) {
            return read_peft(package, base, limits, hash, adapter);
        };
    }
    if (!package.gguf_name.empty())
        parts[package.gguf_name] = [&](GenerationHash& hash) {
            return read_gguf(package, base, limits, hash, adapter);
        };
    if (package.manifest && package.manifest->state)
        parts[package.manifest->state->path] = [&](GenerationHash& hash) {
            return read_state_file(package, base, hash, state);
        };
    GenerationHash hash(limits.make_pace ? limits.make_pace() : nullptr);
    for (const auto& [path, read] : parts)
        if (auto done = read(hash); !done) return done.error();
    if (auto rows = check_token_rows(tokens->added, adapter, base.vocab_size); !rows) return rows.error();
    auto text = make_text(*own, *tokens, base.vocab_size + adapter.added_ids(), limits);
    if (!text) return text.error();
    adapter.text = *std::move(text);
    if (auto scaled = scale_module(adapter, package.manifest ? package.manifest->adapter_scale : 1.0); !scaled)
        return make_error(scaled.error().code, "module_config.json: " + scaled.error().message);
    if (!adapter.states.empty() && !state.states.empty())
        return make_error(Errc::invalid_module, "the package holds a control vector and a state: one of them only");

    auto module = std::make_shared<Module>(std::move(adapter));
    if (!state.states.empty()) {
        module->states = std::move(state.states);
        add_kind(module->kind, "state");
    }
    module->id = {name, hash.finish(package.manifest ? package.manifest->hashed_json : "")};
    module->base_match = base_match(package, module->kind);
    module->unverified = module->base_match == "unverified";
    if (package.manifest) {
        module->order = package.manifest->order;
        module->needs = package.manifest->needs;
        module->version = package.manifest->version;
    }
    if (limits.swap_facts)
        module->swap = swap_facts_of(package, module->kind, module->swap ? *module->swap : SwapFacts{});
    module->host_bytes = host_bytes(*module) + bytes_of(own->files) + tokens->tokenizer_bytes +
                         (module->swap ? module->swap->bytes() : std::uint64_t{0});
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
    limits.swap_facts = settings.modules.swap == "strict";
    return limits;
}

Result<ModuleHeader> inspect_module(const fs::path& path, const ModelShape& base, const ModuleLimits& limits) {
    auto package = open_package(path, base, limits);
    if (!package) return package.error();
    ModuleHeader out;
    if (package->manifest) add_manifest(*package->manifest, out);
    if (package->is_composition()) {
        out.kind = "composition";
    } else {
        if (package->peft)
            if (auto looked = look_at_peft(*package, base, limits, out); !looked) return looked.error();
        if (!package->gguf_name.empty())
            if (auto looked = look_at_gguf(*package, base, limits, out); !looked) return looked.error();
        if (package->manifest && package->manifest->state)
            if (auto looked = look_at_state(*package, base, out); !looked) return looked.error();
        const auto own = read_own_template(package->files, package->prefix, limits.base_folder);
        if (!own) return own.error();
        out.own_template = own->source.has_value();
        const OwnTokens tokens = look_for_own_tokens(package->files, package->prefix, limits.base_folder);
        out.own_tokenizer = !tokens.added.empty();
        out.parsed_bytes += bytes_of(own->files) + tokens.tokenizer_bytes;
        out.file_bytes += bytes_of(own->files);
    }
    out.base_match = base_match(*package, out.kind);
    out.source = package->files.source();
    return out;
}

Result<ModulePtr> load_module(const std::string& name, const fs::path& path, const ModelShape& base,
                              const ModuleLimits& limits) {
    auto package = open_package(path, base, limits);
    if (!package) return package.error();
    if (package->is_composition())
        return make_error(Errc::invalid_module, "a composition has no content of its own: its members are loaded");
    auto module = read_module(name, *package, base, limits);
    // First of all faults: half-written files look broken in every other way too.
    if (auto same = package->files.check_unchanged(); !same) return same.error();
    return module;
}

}  // namespace attune
