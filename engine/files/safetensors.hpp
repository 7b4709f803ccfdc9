#pragma once

#include "attune/result.hpp"
#include "engine/files/stored_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Tells whether a file is still the one that was read.
struct FileIdentity {
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// A file opened for pread: nothing stays mapped, a short read is an error, never a signal.
class ReadOnlyFile {
public:
    static Result<ReadOnlyFile> open(const std::filesystem::path& path);
    ReadOnlyFile(ReadOnlyFile&&) noexcept;
    ReadOnlyFile& operator=(ReadOnlyFile&&) noexcept;
    ~ReadOnlyFile();

    std::uint64_t size() const { return size_; }
    const std::string& name() const { return name_; }  ///< without folder
    Result<FileIdentity> identity() const;             ///< as it is now
    Result<void> read(std::uint64_t offset, std::span<std::byte> into) const;
    /// A part of the file as a file of its own, e.g. a member of an archive. identity() stays that of the whole.
    Result<ReadOnlyFile> window(std::uint64_t offset, std::uint64_t size, std::string name) const;

private:
    ReadOnlyFile(int descriptor, std::uint64_t begin, std::uint64_t size, std::string name);
    int descriptor_ = -1;
    std::uint64_t begin_ = 0;
    std::uint64_t size_ = 0;
    std::string name_;
};

/// The checked header of a safetensors file: sizes, offsets, order and overlaps are those the format demands.
/// Errors name the file (never its folder) and the tensor.
struct SafetensorsHeader {
    std::string file_name;
    std::vector<StoredTensor> tensors;  ///< in name order
    std::map<std::string, std::string> metadata;
    std::uint64_t file_bytes = 0;

    const StoredTensor* find(std::string_view name) const;
};

/// Reads and checks the header only, with pread.
Result<SafetensorsHeader> read_safetensors_header(const std::filesystem::path& path);
/// The same from a file already open, refusing a header over `max_header_bytes` before it is read. `seen` gets the
/// bytes from the file's start to the end of the header, once and in order: what is parsed is what is hashed.
Result<SafetensorsHeader> read_safetensors_header(const ReadOnlyFile& file, std::uint64_t max_header_bytes,
                                                  const std::function<void(std::span<const std::byte>)>& seen = {});
/// The same from bytes already in memory.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string file_name);

/// The whole file, at most `limit` bytes.
Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t limit);

}  // namespace attune
