#pragma once

#include "attune/result.hpp"
#include "engine/files/hash.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/module_loader.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace attune {

/// The files of one module, opened under its limits and watched: each must lie inside the allowed folders (links
/// resolved), and be the same file with the same size and time after all reading as before.
class PackageFiles {
public:
    /// `folder` need not exist yet: not_found is told by open().
    static Result<PackageFiles> open_folder(const std::filesystem::path& folder, const ModuleLimits& limits);

    bool has(const std::string& relative) const;
    /// Where the file lies once links are followed: a regular file inside the allowed folders, or an error naming it.
    Result<std::filesystem::path> resolve(const std::string& relative) const;

    /// Opens a file that is read for effect. `relative` is its path in the package, '/' between parts.
    Result<ReadOnlyFile> open(const std::string& relative);
    /// A small text file, whole.
    Result<std::vector<std::byte>> read_text(const std::string& relative);

    /// Errc::unavailable if any opened file is no longer what it was when it was opened.
    Result<void> check_unchanged() const;

    /// All files opened so far, combined.
    ModuleSource source() const;

private:
    struct Opened {
        std::string relative;
        std::filesystem::path path;
        FileIdentity identity;
    };

    PackageFiles(std::filesystem::path folder, const ModuleLimits& limits)
        : folder_(std::move(folder)), limits_(limits) {}

    std::filesystem::path folder_;  // canonical
    ModuleLimits limits_;
    std::vector<Opened> opened_;
    std::uint64_t bytes_ = 0;
};

/// Collects a generation: files in byte order of their path, then the manifest's part.
class GenerationHash {
public:
    /// Files must come in byte order; their bytes follow through update().
    void begin_file(const std::string& relative, std::uint64_t bytes);
    void update(std::span<const std::byte> bytes) { hash_.update(bytes); }
    std::string finish(const std::string& manifest_json);

private:
    Sha256 hash_;
};

}  // namespace attune
