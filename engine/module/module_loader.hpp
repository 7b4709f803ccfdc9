#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "engine/module/module.hpp"
#include "engine/module/module_text.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attune {

struct Settings;

struct ModuleLimits {
    int max_rank = 64;
    std::uint64_t package_bytes = 2ull << 30;  ///< all files read for effect together
    int package_files = 64;
    bool allow_unverified_base = false;
    /// Files of a module must resolve inside one of these, links included; empty: inside the module's own folder.
    std::vector<std::filesystem::path> roots = {};
    /// The base's folder: a module's tokenizer and template files are ignored when they mean the base's own.
    std::filesystem::path base_folder = {};
    /// Null: a module with a template or a tokenizer of its own is refused.
    MakeTemplate make_template = {};
    MakeTokenizer make_tokenizer = {};
    /// Kinds that are built from the base's weights (DoRA, dense ones, saved tables) need them. Null: those are
    /// refused.
    std::shared_ptr<const BaseValues> base_values = {};
    bool swap_facts = false;  ///< Module::swap is wanted
    /// Called for each load: what it makes is told after every piece of a file how many bytes that was, and may take
    /// its time. Null: loads do not pause.
    std::function<std::function<void(std::uint64_t bytes)>()> make_pace = {};
};

/// What the settings allow a module to be. `roots` stays empty: whoever has roots adds them.
ModuleLimits module_limits(const Settings& settings);

/// The files a name points to, as last seen: tells whether a cold source changed. Combined over the files read for
/// effect.
struct ModuleSource {
    std::filesystem::path path;
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const ModuleSource&, const ModuleSource&) = default;
};

/// What a look at manifest, config and file headers tells, without reading weights.
struct ModuleHeader {
    ModuleSource source;
    std::string kind;  ///< lora, dora, miss, prefix, state, ... (see AdapterPlan)
    int max_rank = 0;
    std::vector<std::string> targets;  ///< projections, e.g. q_proj, in table order
    std::uint64_t parsed_bytes = 0;    ///< upper bound of Module::host_bytes; what a load reserves first
    std::uint64_t file_bytes = 0;
    bool own_template = false;   ///< its chats cannot be prepared before it is loaded
    bool own_tokenizer = false;  ///< nor any of its texts

    // From the manifest; empty for a plain PEFT folder. Routing, cold, pin and owner count only for trusted roots.
    std::string name;
    std::string version;
    std::string description;
    std::string license;
    std::string base_match;          ///< shape, checkpoint, unverified
    int order = 0;                   ///< of its states among those of a request
    std::vector<Requirement> needs;  ///< put on first
    /// A named composition: only this, `combine` and the texts above and below say anything.
    std::vector<WeightedModule> members;
    Combine combine = Combine::sequence;
    std::optional<RouteRule> routing;  ///< names the module by `name`
    std::optional<ColdPolicy> cold;
    bool pin = false;
    std::string owner;
};

/// `path`: a PEFT folder, a package folder, a packed module (.attune), a LoRA or control vector in GGUF.
/// Errors never contain the path, only file names inside the module: not_found (nothing there), invalid_module (wrong,
/// unsupported, or for another base), unavailable (it may succeed later: files changed while they were read, or the
/// base's checkpoint is not known yet), io.
Result<ModuleHeader> inspect_module(const std::filesystem::path& path, const ModelShape& base,
                                    const ModuleLimits& limits);

/// Reads, hashes and checks a module whole (DESIGN rule 2): every tensor used, every pair complete, shapes of this
/// base, finite values, rank within the limit. A composition has no content: Errc::invalid_module. Files are read once;
/// generation and content come from the same bytes. Blocking: for loaders only.
Result<ModulePtr> load_module(const std::string& name, const std::filesystem::path& path, const ModelShape& base,
                              const ModuleLimits& limits);

}  // namespace attune
