#include "engine/module/package_files.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = 1u << 20;

bool lies_inside(const fs::path& file, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

Result<PackageFiles> PackageFiles::open_folder(const fs::path& folder, const ModuleLimits& limits) {
    std::error_code fault;
    fs::path canonical = fs::canonical(folder, fault);
    if (fault || !fs::is_directory(canonical, fault))
        return make_error(Errc::not_found, "there is no such module folder");
    return PackageFiles(std::move(canonical), limits);
}

bool PackageFiles::has(const std::string& relative) const {
    std::error_code fault;
    return fs::exists(folder_ / relative, fault);
}

Result<fs::path> PackageFiles::resolve(const std::string& relative) const {
    std::error_code fault;
    fs::path path = fs::canonical(folder_ / relative, fault);
    if (fault) return make_error(Errc::invalid_module, relative + " is missing");
    bool inside = limits_.roots.empty() && lies_inside(path, folder_);
    for (const fs::path& root : limits_.roots) inside = inside || lies_inside(path, fs::weakly_canonical(root, fault));
    if (!inside) return make_error(Errc::invalid_module, relative + " is a link that leaves the module");
    // Said here, where it is the module's fault: what else fails in open() is the server's.
    if (!fs::is_regular_file(path, fault)) return make_error(Errc::invalid_module, relative + " is not a regular file");
    return path;
}

Result<ReadOnlyFile> PackageFiles::open(const std::string& relative) {
    const auto path = resolve(relative);
    if (!path) return path.error();
    auto file = ReadOnlyFile::open(*path);
    if (!file) return file;
    const auto identity = file->identity();
    if (!identity) return identity.error();
    if (static_cast<int>(opened_.size()) >= limits_.package_files)
        return make_error(Errc::invalid_module,
                          "the module has more files than the limit of " + std::to_string(limits_.package_files));
    bytes_ += identity->size;
    if (bytes_ > limits_.package_bytes)
        return make_error(Errc::invalid_module, "the module's files have at least " + std::to_string(bytes_) +
                                                    " bytes, the limit is " + std::to_string(limits_.package_bytes));
    opened_.push_back({relative, *path, *identity});
    return file;
}

Result<std::vector<std::byte>> PackageFiles::read_text(const std::string& relative) {
    const auto file = open(relative);
    if (!file) return file.error();
    if (file->size() > kMaxTextBytes)
        return make_error(Errc::invalid_module, relative + " has " + std::to_string(file->size()) +
                                                    " bytes, the limit is " + std::to_string(kMaxTextBytes));
    std::vector<std::byte> bytes(file->size());
    if (auto read = file->read(0, bytes); !read) return read.error();
    return bytes;
}

Result<void> PackageFiles::check_unchanged() const {
    for (const Opened& opened : opened_) {
        // By path again: a file that was replaced keeps its old content open, and the set would be of two ages.
        std::error_code fault;
        const fs::path now = fs::canonical(folder_ / opened.relative, fault);
        const auto file =
            fault || now != opened.path ? Result<ReadOnlyFile>(make_error(Errc::io, "gone")) : ReadOnlyFile::open(now);
        if (file)
            if (const auto identity = file->identity(); identity && *identity == opened.identity) continue;
        return make_error(Errc::unavailable, opened.relative + " changed while it was read");
    }
    return {};
}

ModuleSource PackageFiles::source() const {
    ModuleSource source{.path = folder_};
    for (const Opened& opened : opened_) {
        source.size += opened.identity.size;
        source.mtime_ns = std::max(source.mtime_ns, opened.identity.mtime_ns);
        // FNV-1a over what identifies each file: a changed member changes the sum of them.
        for (const std::uint64_t part :
             {opened.identity.inode, opened.identity.size, static_cast<std::uint64_t>(opened.identity.mtime_ns)})
            source.inode = (source.inode ^ part) * 0x100000001B3ULL;
    }
    return source;
}

void GenerationHash::begin_file(const std::string& relative, std::uint64_t bytes) {
    using namespace std::string_view_literals;
    hash_.update(relative);
    hash_.update("\0"sv);
    hash_.update(std::to_string(bytes));
    hash_.update("\0"sv);
}

std::string GenerationHash::finish(const std::string& manifest_json) {
    hash_.update(manifest_json);
    return hash_.hex();
}

}  // namespace attune
