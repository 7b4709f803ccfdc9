#pragma once

#include "attune/result.hpp"
#include "engine/module/module.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace attune {

struct ModuleLimits {
    int max_rank = 64;
    std::uint64_t package_bytes = 2ull << 30;  ///< all files read for effect together
    int package_files = 64;
    bool allow_unverified_base = false;
};

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
    std::string kind;  ///< lora
    int max_rank = 0;
    std::vector<std::string> targets;  ///< projections, e.g. q_proj, in table order
    std::uint64_t parsed_bytes = 0;    ///< upper bound of Module::host_bytes; what a load reserves first
    std::uint64_t file_bytes = 0;
};

/// Errors never contain the path, only file names inside the module.
Result<ModuleHeader> inspect_module(const std::filesystem::path& path, const ModelShape& base,
                                    const ModuleLimits& limits);

/// Reads, hashes and checks a module whole (DESIGN rule 2): every tensor used, every pair complete, shapes of this
/// base, finite values, rank within the limit. Files are read once; generation and content come from the same bytes.
/// Blocking: for loaders only.
Result<ModulePtr> load_module(const std::string& name, const std::filesystem::path& path, const ModelShape& base,
                              const ModuleLimits& limits);

}  // namespace attune
