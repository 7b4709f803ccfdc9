#include "engine/files/safetensors.hpp"

#include "engine/files/quote.hpp"
#include "engine/files/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace attune {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference library's cap

Error refuse(const std::string& file_name, const std::string& fault) {
    return make_error(Errc::invalid_module, file_name + ": " + fault);
}

Result<std::uint64_t> header_bytes(std::span<const std::byte, kLengthBytes> field, std::uint64_t file_bytes,
                                   const std::string& file_name) {
    std::uint64_t length = 0;  // little-endian
    for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(field[i]) << (8 * i);
    if (length > kMaxHeaderBytes)
        return refuse(file_name, "the header is said to have " + std::to_string(length) + " bytes, the limit is " +
                                     std::to_string(kMaxHeaderBytes));
    if (length > file_bytes - kLengthBytes)
        return refuse(file_name, "the header is said to have " + std::to_string(length) + " bytes, the file has " +
                                     std::to_string(file_bytes));
    return length;
}

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
    return !__builtin_mul_overflow(a, b, &product);
}

Result<StoredTensor> describe(const std::string& name, const HeaderEntry& entry, std::uint64_t data_begin,
                              const std::string& file_name) {
    const std::string who = "tensor " + in_quotes(name) + ": ";
    StoredTensor tensor;
    tensor.name = name;
    tensor.type_name = entry.type_name;
    std::uint64_t bits = 0;
    if (!stored_type(entry.type_name, tensor.type, bits))
        return refuse(file_name, who + "unknown dtype " + in_quotes(entry.type_name));
    std::uint64_t count = 1;
    for (const std::uint64_t extent : entry.shape) {
        if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
            !multiply(count, extent, count))
            return refuse(file_name, who + "shape " + shape_text(entry.shape) + " overflows");
        tensor.shape.push_back(static_cast<std::int64_t>(extent));
    }
    if (!multiply(count, bits, bits)) return refuse(file_name, who + "shape " + shape_text(entry.shape) + " overflows");
    if (bits % 8 != 0) return refuse(file_name, who + "its values do not fill whole bytes");
    tensor.bytes = bits / 8;
    if (entry.end < entry.begin)
        return refuse(file_name, who + "data_offsets " + std::to_string(entry.begin) + ", " +
                                     std::to_string(entry.end) + " run backwards");
    if (entry.end - entry.begin != tensor.bytes)
        return refuse(file_name, who + shape_text(entry.shape) + " of " + entry.type_name + " needs " +
                                     std::to_string(tensor.bytes) + " bytes, data_offsets give " +
                                     std::to_string(entry.end - entry.begin));
    tensor.begin = data_begin + entry.begin;  // cannot wrap: the cover check below keeps begin within the file
    return tensor;
}

// Every byte after the header belongs to exactly one tensor.
Result<void> check_cover(const HeaderText& text, std::uint64_t data_bytes, const std::string& file_name) {
    struct Range {
        std::uint64_t begin, end;
        const std::string* name;
    };
    std::vector<Range> ranges;
    ranges.reserve(text.entries.size());
    for (const auto& [name, entry] : text.entries) ranges.push_back({entry.begin, entry.end, &name});
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::uint64_t reached = 0;
    for (const Range& range : ranges) {
        if (range.begin < reached)
            return refuse(file_name, "tensor " + in_quotes(*range.name) + " overlaps the one before it");
        if (range.begin > reached)
            return refuse(file_name, "bytes before tensor " + in_quotes(*range.name) + " belong to no tensor");
        if (range.end > data_bytes)
            return refuse(file_name,
                          "tensor " + in_quotes(*range.name) + " ends after the file: the file is cut short");
        reached = std::max(reached, range.end);
    }
    if (reached != data_bytes)
        return refuse(file_name, std::to_string(data_bytes - reached) + " bytes at the end belong to no tensor");
    return {};
}

Result<SafetensorsHeader> build_header(std::string_view json, std::uint64_t file_bytes, const std::string& file_name) {
    auto text = parse_header_text(json, file_name);
    if (!text) return text.error();
    const std::uint64_t data_begin = kLengthBytes + json.size();
    if (auto covered = check_cover(*text, file_bytes - data_begin, file_name); !covered) return covered.error();
    SafetensorsHeader header;
    header.file_name = file_name;
    header.file_bytes = file_bytes;
    header.metadata = std::move(text->metadata);
    header.tensors.reserve(text->entries.size());
    for (const auto& [name, entry] : text->entries) {
        auto tensor = describe(name, entry, data_begin, file_name);
        if (!tensor) return tensor.error();
        header.tensors.push_back(*std::move(tensor));
    }
    return header;
}

}  // namespace

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
    const auto at =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Result<SafetensorsHeader> read_safetensors_header(const ReadOnlyFile& file, std::uint64_t max_header_bytes,
                                                  const std::function<void(std::span<const std::byte>)>& seen) {
    if (file.size() < kLengthBytes) return refuse(file.name(), "the file is too short for a header");
    std::array<std::byte, kLengthBytes> field;
    if (auto read = file.read(0, field); !read) return read.error();
    const auto length = header_bytes(field, file.size(), file.name());
    if (!length) return length.error();
    if (*length > max_header_bytes)
        return refuse(file.name(), "its header has " + std::to_string(*length) + " bytes, the limit is " +
                                       std::to_string(max_header_bytes));
    std::string json(*length, '\0');
    const auto bytes = std::as_writable_bytes(std::span(json));
    if (auto read = file.read(kLengthBytes, bytes); !read) return read.error();
    if (seen) {
        seen(field);
        seen(bytes);
    }
    return build_header(json, file.size(), file.name());
}

Result<SafetensorsHeader> read_safetensors_header(const std::filesystem::path& path) {
    const auto file = ReadOnlyFile::open(path);
    if (!file) return file.error();
    return read_safetensors_header(*file, kMaxHeaderBytes);
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string file_name) {
    if (file.size() < kLengthBytes) return refuse(file_name, "the file is too short for a header");
    const auto length = header_bytes(file.first<kLengthBytes>(), file.size(), file_name);
    if (!length) return length.error();
    const auto json = file.subspan(kLengthBytes, *length);
    return build_header({reinterpret_cast<const char*>(json.data()), json.size()}, file.size(), file_name);
}

}  // namespace attune
