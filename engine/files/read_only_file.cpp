#include "engine/files/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace attune {

Result<ReadOnlyFile> ReadOnlyFile::open(const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    // O_NONBLOCK: opening a FIFO must fail below, not hang a loader.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return make_error(
            Errc::io,
            name + (errno == ENOENT ? " is missing" : std::string(" cannot be opened: ") + std::strerror(errno)));
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor);
        return make_error(Errc::io, name + " is not a regular file");
    }
    ReadOnlyFile file(descriptor, 0, static_cast<std::uint64_t>(status.st_size), name);
    return file;
}

ReadOnlyFile::ReadOnlyFile(int descriptor, std::uint64_t begin, std::uint64_t size, std::string name)
    : descriptor_(descriptor), begin_(begin), size_(size), name_(std::move(name)) {}

ReadOnlyFile::ReadOnlyFile(ReadOnlyFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      begin_(other.begin_),
      size_(other.size_),
      name_(std::move(other.name_)) {}

ReadOnlyFile& ReadOnlyFile::operator=(ReadOnlyFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    std::swap(name_, other.name_);
    return *this;
}

ReadOnlyFile::~ReadOnlyFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

Result<FileIdentity> ReadOnlyFile::identity() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) return make_error(Errc::io, name_ + " cannot be examined");
    return FileIdentity{static_cast<std::uint64_t>(status.st_size),
                        static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec,
                        static_cast<std::uint64_t>(status.st_ino)};
}

Result<ReadOnlyFile> ReadOnlyFile::window(std::uint64_t offset, std::uint64_t size, std::string name) const {
    if (offset > size_ || size > size_ - offset) return make_error(Errc::io, name + " lies outside of " + name_);
    const int copy = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return make_error(Errc::io, name + " cannot be opened: " + std::strerror(errno));
    ReadOnlyFile part(copy, begin_ + offset, size, std::move(name));
    return part;
}

Result<void> ReadOnlyFile::read(std::uint64_t offset, std::span<std::byte> into) const {
    // Beyond a window lies another member's content, so the size at opening is the end.
    if (offset > size_ || into.size() > size_ - offset)
        return make_error(Errc::io, name_ + " ended early: it is shorter than when it was opened");
    offset += begin_;
    while (!into.empty()) {
        const ssize_t got = ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return make_error(Errc::io, name_ + " cannot be read: " + std::strerror(errno));
        if (got == 0) return make_error(Errc::io, name_ + " ended early: it is shorter than when it was opened");
        offset += static_cast<std::uint64_t>(got);
        into = into.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t limit) {
    auto file = ReadOnlyFile::open(path);
    if (!file) return file.error();
    if (file->size() > limit)
        return make_error(Errc::invalid_argument, path.filename().string() + " has " + std::to_string(file->size()) +
                                                      " bytes, the limit is " + std::to_string(limit));
    std::vector<std::byte> bytes(file->size());
    if (auto read = file->read(0, bytes); !read) return read.error();
    return bytes;
}

}  // namespace attune
