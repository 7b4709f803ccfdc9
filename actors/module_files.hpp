#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "attune/settings.hpp"
#include "engine/module/module_loader.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// `serving.*` and `routing.*` of a package's manifest: empty where manifests are not trusted.
struct ServingManifest {
    std::optional<ColdPolicy> cold;
    bool pin = false;
    std::string owner;
    std::optional<RouteRule> rule;
};

/// A module as found on disk, before its weights are read.
struct FoundModule {
    std::string name;
    std::filesystem::path path;  ///< canonical, below a root; never shown to a client
    Result<ModuleHeader> header = make_error(Errc::internal, "not inspected");
    ServingManifest manifest;
};

struct ScanResult {
    std::vector<FoundModule> modules;  ///< unique names, in root order then name order
    std::vector<std::string> refused;  ///< a sentence for each thing that got no name
};

/// The blocking half of module handling, as functions so that tests need no disk. Called by loaders only.
struct ModuleFiles {
    std::function<ScanResult()> scan;
    /// A path as `load_lora_adapter` gives it. Whatever is not below a root reads as missing, with one text.
    std::function<Result<FoundModule>(const std::string& name, const std::string& path)> resolve;
    std::function<Result<ModulePtr>(const std::string& name, const std::filesystem::path& path)> load;
};

/// The real ones. `tokenizer` null: modules with a template or tokenizer of their own are refused. `base_values` null:
/// so are those that are built from the base's weights. `is_busy`: the engine computes, so that large loads take their
/// time; null: they never do.
ModuleFiles module_files(const Settings& settings, const ModelShape& base, const std::string& base_id,
                         std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                         std::shared_ptr<const BaseValues> base_values = nullptr,
                         std::function<bool()> is_busy = nullptr);

struct LoaderTask {
    enum class Kind : std::uint8_t { scan, resolve, load } kind = Kind::load;
    std::string name;
    std::string path;
    std::uint64_t bytes = 0;  ///< what its load will take in memory, as far as the headers tell
};
using LoaderTaskPtr = std::shared_ptr<const LoaderTask>;

/// The part that belongs to the task's kind is filled.
struct LoaderDone {
    ScanResult scan;
    std::optional<Result<FoundModule>> found;
    std::optional<Result<ModulePtr>> module;
};
using LoaderDonePtr = std::shared_ptr<LoaderDone>;

/// Runs one task; no exception leaves it.
LoaderDonePtr run_task(const ModuleFiles& files, const LoaderTask& task);

}  // namespace attune
