#include "engine/module/package_files.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

bool lies_inside(const fs::path& file, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

Result<PackageFiles> PackageFiles::open(const fs::path& path, const ModuleLimits& limits) {
    std::error_code fault;
    fs::path canonical = fs::canonical(path, fault);
    if (fault) return make_error(Errc::not_found, "there is no such module folder");
    if (fs::is_directory(canonical, fault)) return PackageFiles(std::move(canonical), limits);
    // The name as given: a link to a file elsewhere is judged by where it leads.
    PackageFiles files(fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), fault), limits);
    if (fault || !fs::is_regular_file(canonical, fault))
        return make_error(Errc::not_found, "there is no such module folder");
    files.single_ = path.filename().string();
    if (path.extension() == ".attune")
        if (auto opened = files.open_archive(); !opened) return opened.error();
    return files;
}

Result<void> PackageFiles::open_archive() {
    const auto path = resolve(single_);
    if (!path) return path.error();
    auto file = ReadOnlyFile::open(*path);
    if (!file) return file.error();
    const auto identity = file->identity();
    if (!identity) return identity.error();
    if (identity->size > limits_.package_bytes)
        return make_error(Errc::invalid_module, "the module's files have at least " + std::to_string(identity->size) +
                                                    " bytes, the limit is " + std::to_string(limits_.package_bytes));
    auto members = read_tar_index(*file, limits_.package_files);
    if (!members) return members.error();
    members_ = *std::move(members);
    opened_.push_back({single_, *path, *identity});
    archive_ = std::make_shared<const ReadOnlyFile>(*std::move(file));
    return {};
}

bool PackageFiles::has(const std::string& relative) const {
    if (is_archive()) return members_.contains(relative);
    std::error_code fault;
    return (single_.empty() || relative == single_) && fs::exists(folder_ / relative, fault);
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

Result<ReadOnlyFile> PackageFiles::look(const std::string& relative) const {
    if (!is_archive()) {
        const auto path = resolve(relative);
        return path ? ReadOnlyFile::open(*path) : path.error();
    }
    const auto member = members_.find(relative);
    if (member == members_.end()) return make_error(Errc::invalid_module, relative + " is missing");
    return archive_->window(member->second.begin, member->second.bytes, fs::path(relative).filename().string());
}

Result<ReadOnlyFile> PackageFiles::open(const std::string& relative) {
    if (is_archive()) return look(relative);  // counted and watched as a whole
    const auto path = resolve(relative);
    if (!path) return path.error();
    auto file = ReadOnlyFile::open(*path);
    if (!file) return file;
    const auto identity = file->identity();
    if (!identity) return identity.error();
    if (auto counted = count(identity->size); !counted) return counted.error();
    opened_.push_back({relative, *path, *identity});
    return file;
}

Result<void> PackageFiles::count(std::uint64_t bytes) {
    if (static_cast<int>(opened_.size()) >= limits_.package_files)
        return make_error(Errc::invalid_module,
                          "the module has more files than the limit of " + std::to_string(limits_.package_files));
    bytes_ += bytes;
    if (bytes_ > limits_.package_bytes)
        return make_error(Errc::invalid_module, "the module's files have at least " + std::to_string(bytes_) +
                                                    " bytes, the limit is " + std::to_string(limits_.package_bytes));
    return {};
}

Result<std::vector<std::byte>> PackageFiles::read_text(const std::string& relative, std::uint64_t limit) {
    const auto file = open(relative);
    if (!file) return file.error();
    if (file->size() > limit)
        return make_error(Errc::invalid_module, relative + " has " + std::to_string(file->size()) +
                                                    " bytes, the limit is " + std::to_string(limit));
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
    ModuleSource source{.path = folder_ / single_};
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
