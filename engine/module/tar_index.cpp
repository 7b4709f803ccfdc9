#include "engine/module/tar_index.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

namespace attune {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMaxNameBytes = 64u << 10;  // of a long name's own member
constexpr int kMaxHeaders = 100'000;

using Header = std::array<char, kBlock>;

// A field of the header up to its first NUL.
std::string_view field(const Header& header, std::size_t at, std::size_t size) {
    const std::string_view whole(header.data() + at, size);
    return whole.substr(0, whole.find('\0'));
}

std::optional<std::uint64_t> octal(std::string_view text) {
    const auto begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return 0;
    text.remove_prefix(begin);
    text = text.substr(0, text.find(' '));
    std::uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
    if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Sizes of 8 GiB and more are in base 256 with the top bit set (GNU); a package is never so large.
std::optional<std::uint64_t> size_of(const Header& header) { return octal(field(header, 124, 12)); }

bool checksum_fits(const Header& header) {
    const auto stored = octal(field(header, 148, 8));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < header.size(); ++i)
        sum += i >= 148 && i < 156 ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(header[i]);
    return stored && *stored == sum;
}

std::string name_of(const Header& header) {
    std::string name(field(header, 0, 100));
    const bool ustar = std::string_view(header.data() + 257, 5) == "ustar";
    const std::string_view prefix = ustar ? field(header, 345, 155) : std::string_view();
    return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

/// "path" of pax records "LENGTH KEY=VALUE\n".
std::optional<std::string> pax_path(std::string_view records) {
    std::optional<std::string> path;
    while (!records.empty()) {
        std::size_t length = 0;
        const auto [end, fault] = std::from_chars(records.data(), records.data() + records.size(), length);
        const auto digits = static_cast<std::size_t>(end - records.data());
        if (fault != std::errc() || length <= digits + 1 || length > records.size()) break;
        std::string_view record = records.substr(digits + 1, length - digits - 1);
        if (record.ends_with('\n')) record.remove_suffix(1);
        if (record.starts_with("path=")) path = std::string(record.substr(5));
        records.remove_prefix(length);
    }
    return path;
}

/// "./a/b" -> "a/b"; nothing for a path that is absolute, leaves the archive or names nothing.
std::optional<std::string> normal_path(std::string_view name) {
    if (name.find('\0') != std::string_view::npos) return std::nullopt;
    const std::filesystem::path path(name);
    if (path.is_absolute()) return std::nullopt;
    for (const auto& part : path)
        if (part == "..") return std::nullopt;
    std::string normal = path.lexically_normal().generic_string();
    if (normal.ends_with('/')) normal.pop_back();
    return normal;
}

class IndexReader {
public:
    IndexReader(const ReadOnlyFile& file, int max_files) : file_(file), max_files_(max_files) {}

    Result<std::map<std::string, TarMember>> read() {
        for (int headers = 0; at_ + kBlock <= file_.size(); ++headers) {
            if (headers > kMaxHeaders) return refuse("it has too many members");
            Header header;
            if (auto got = file_.read(at_, std::as_writable_bytes(std::span(header))); !got) return got.error();
            if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) return members_;
            if (auto taken = take(header); !taken) return taken.error();
        }
        // Two blocks of zeros should end it; a file that just stops after a member is whole, too.
        return at_ == file_.size() ? Result(members_) : refuse("it ends inside a header");
    }

private:
    Error refuse(const std::string& fault) const {
        return make_error(Errc::invalid_module, file_.name() + ": " + fault);
    }

    Result<void> take(const Header& header) {
        const auto size = size_of(header);
        if (!checksum_fits(header) || !size) return refuse("it is no tar, or a header of it is damaged");
        const std::uint64_t begin = at_ + kBlock;
        if (*size > file_.size() - begin) return refuse("a member is longer than the archive");
        const std::string name = long_name_.value_or(name_of(header));
        const char type = header[156];
        at_ = begin + (*size + kBlock - 1) / kBlock * kBlock;
        if (type == 'x' || type == 'g' || type == 'L') return take_name(type, begin, *size);
        long_name_.reset();
        if (type == '5') return {};
        if (type != '0' && type != '\0') return refuse("member " + in_quotes(name) + " is not a regular file");
        auto path = normal_path(name);
        if (!path || path->empty() || *path == ".")
            return refuse("member " + in_quotes(name) + " is no path inside the archive");
        if (static_cast<int>(members_.size()) >= max_files_)
            return refuse("it has more files than the limit of " + std::to_string(max_files_));
        if (!members_.emplace(*std::move(path), TarMember{begin, *size}).second)
            return refuse("member " + in_quotes(name) + " is there twice");
        return {};
    }

    /// The next member's name, where the header has no room for it. Global pax records name nothing.
    Result<void> take_name(char type, std::uint64_t begin, std::uint64_t size) {
        if (type == 'g') return {};
        if (size > kMaxNameBytes) return refuse("a member's name is too long");
        std::string text(size, '\0');
        if (auto got = file_.read(begin, std::as_writable_bytes(std::span(text))); !got) return got;
        if (type == 'L') {
            long_name_ = text.substr(0, text.find('\0'));
        } else if (auto path = pax_path(text)) {
            long_name_ = *std::move(path);
        }
        return {};
    }

    const ReadOnlyFile& file_;
    int max_files_;
    std::uint64_t at_ = 0;
    std::optional<std::string> long_name_;
    std::map<std::string, TarMember> members_;
};

}  // namespace

Result<std::map<std::string, TarMember>> read_tar_index(const ReadOnlyFile& file, int max_files) {
    return IndexReader(file, max_files).read();
}

}  // namespace attune
