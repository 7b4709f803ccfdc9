#include "engine/module/pack_module.hpp"

#include "engine/files/quote.hpp"
#include "engine/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kSliceBytes = 256u << 10;

Error refuse(const std::string& fault) { return make_error(Errc::invalid_argument, fault); }

Result<std::map<std::string, fs::path>> list_files(const fs::path& folder) {
    std::map<std::string, fs::path> files;
    std::error_code fault;
    for (fs::recursive_directory_iterator entry(folder, fault), end; !fault && entry != end; entry.increment(fault)) {
        const std::string name = entry->path().lexically_relative(folder).generic_string();
        const auto status = entry->symlink_status(fault);
        if (fs::is_directory(status)) continue;
        if (!fs::is_regular_file(status)) return refuse(name + " is not a regular file");
        files[name] = entry->path();
    }
    if (fault) return make_error(Errc::io, "the folder cannot be listed: " + fault.message());
    if (files.empty()) return refuse("the folder holds no file");
    return files;
}

void put_octal(char* field, std::size_t size, std::uint64_t value) {
    std::snprintf(field, size, "%0*llo", static_cast<int>(size) - 1, static_cast<unsigned long long>(value));
}

/// name and prefix have room for 100 and 155 bytes, cut at a slash.
std::optional<std::array<char, kBlock>> header_of(const std::string& name, std::uint64_t bytes) {
    std::array<char, kBlock> header{};
    std::size_t cut = 0;
    if (name.size() > 100) {
        cut = name.rfind('/', 155);
        if (cut == std::string::npos || name.size() - cut - 1 > 100) return std::nullopt;
        std::memcpy(header.data() + 345, name.data(), cut);
        ++cut;
    }
    std::memcpy(header.data(), name.data() + cut, name.size() - cut);
    put_octal(header.data() + 100, 8, 0644);
    put_octal(header.data() + 108, 8, 0);
    put_octal(header.data() + 116, 8, 0);
    put_octal(header.data() + 124, 12, bytes);
    put_octal(header.data() + 136, 12, 0);
    header[156] = '0';
    std::memcpy(header.data() + 257,
                "ustar\0"
                "00",
                8);
    std::memset(header.data() + 148, ' ', 8);
    std::uint64_t sum = 0;
    for (const char byte : header) sum += static_cast<unsigned char>(byte);
    put_octal(header.data() + 148, 7, sum);
    return header;
}

Result<void> write_member(std::ostream& out, const std::string& name, const fs::path& path) {
    const auto file = ReadOnlyFile::open(path);
    if (!file) return file.error();
    const auto header = header_of(name, file->size());
    if (!header) return refuse("the path " + in_quotes(name) + " is too long for a tar");
    out.write(header->data(), kBlock);
    std::vector<std::byte> slice(kSliceBytes);
    for (std::uint64_t at = 0; at < file->size(); at += slice.size()) {
        const std::span<std::byte> some(slice.data(), std::min<std::uint64_t>(slice.size(), file->size() - at));
        if (auto read = file->read(at, some); !read) return read;
        out.write(reinterpret_cast<const char*>(some.data()), static_cast<std::streamsize>(some.size()));
    }
    const std::array<char, kBlock> zeros{};
    out.write(zeros.data(), static_cast<std::streamsize>((kBlock - file->size() % kBlock) % kBlock));
    return {};
}

Result<void> write_all(const std::map<std::string, fs::path>& files, const fs::path& part) {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    for (const auto& [name, path] : files)
        if (auto done = write_member(out, name, path); !done) return done;
    const std::array<char, 2 * kBlock> end{};
    out.write(end.data(), end.size());
    out.close();
    return out ? Result<void>() : make_error(Errc::io, part.filename().string() + " cannot be written");
}

}  // namespace

Result<void> pack_module(const fs::path& folder, const fs::path& out) {
    std::error_code fault;
    if (!fs::is_directory(folder, fault)) return refuse("there is no such module folder");
    if (fs::exists(out, fault)) return refuse(out.filename().string() + " exists already");
    const auto files = list_files(folder);
    if (!files) return files.error();
    const fs::path part = out.string() + ".part";
    auto written = write_all(*files, part);
    if (written) {
        fs::rename(part, out, fault);
        if (fault) written = make_error(Errc::io, out.filename().string() + " cannot be written: " + fault.message());
    }
    if (!written) fs::remove(part, fault);
    return written;
}

}  // namespace attune
