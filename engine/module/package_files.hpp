#pragma once

#include "attune/result.hpp"
#include "engine/files/hash.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/module/tar_index.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// The files of one module, opened under its limits and watched: each must lie inside the allowed folders (links
/// resolved), or in the module's archive, and be the same file with the same size and time after all reading as before.
class PackageFiles {
public:
    /// A folder, a packed module (.attune), or one file: then its folder, of which only that file is looked at.
    static Result<PackageFiles> open(const std::filesystem::path& path, const ModuleLimits& limits);

    /// The one file's name, when the module is a single file and no archive.
    std::string single() const { return is_archive() ? std::string() : single_; }
    bool is_archive() const { return archive_ != nullptr; }

    bool has(const std::string& relative) const;
    /// Where the file lies once links are followed: a regular file inside the allowed folders, or an error naming it.
    /// A member of an archive lies nowhere.
    Result<std::filesystem::path> resolve(const std::string& relative) const;
    /// Opens a file that is only compared: it counts for no limit and is not watched.
    Result<ReadOnlyFile> look(const std::string& relative) const;

    /// Opens a file that is read for effect. `relative` is its path in the package, '/' between parts.
    Result<ReadOnlyFile> open(const std::string& relative);
    /// A small text file, whole.
    Result<std::vector<std::byte>> read_text(const std::string& relative, std::uint64_t limit = kMaxTextBytes);
    static constexpr std::uint64_t kMaxTextBytes = 1u << 20;

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

    Result<void> open_archive();
    Result<void> count(std::uint64_t bytes);

    std::filesystem::path folder_;  // canonical
    std::string single_;            // of a single file or an archive: its name in folder_
    std::shared_ptr<const ReadOnlyFile> archive_;
    std::map<std::string, TarMember> members_;  // of the archive
    ModuleLimits limits_;
    std::vector<Opened> opened_;
    std::uint64_t bytes_ = 0;
};

/// Collects a generation: files in byte order of their path, then the manifest's part.
class GenerationHash {
public:
    /// `pace`: told how many bytes were added, after each piece; may be null.
    explicit GenerationHash(std::function<void(std::uint64_t bytes)> pace = nullptr) : pace_(std::move(pace)) {}
    /// Files must come in byte order; their bytes follow through update().
    void begin_file(const std::string& relative, std::uint64_t bytes);
    void update(std::span<const std::byte> bytes) {
        hash_.update(bytes);
        if (pace_) pace_(bytes.size());
    }
    std::string finish(const std::string& manifest_json);

private:
    Sha256 hash_;
    std::function<void(std::uint64_t bytes)> pace_;
};

}  // namespace attune
