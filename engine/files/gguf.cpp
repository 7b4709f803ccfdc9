#include "engine/files/gguf.hpp"

#include "engine/files/byte_reader.hpp"
#include "engine/files/gguf_parser.hpp"
#include "engine/files/quote.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace attune {
namespace {

Result<GgufHeader> parse(ByteReader& in, std::uint64_t file_bytes, std::string file_name) {
    GgufHeader header;
    header.file_name = std::move(file_name);
    header.file_bytes = file_bytes;
    GgufParser parser(in, header);
    if (!parser.parse()) return parser.error();
    in.finish();
    return header;
}

std::string_view type_text(GgufType type) {
    static constexpr std::array<std::string_view, 13> kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                                "bool", "string", "array", "u64", "i64", "f64"};
    return kNames[static_cast<std::size_t>(type)];
}

bool is_integer(GgufType type) {
    return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::boolean && type != GgufType::string &&
           type != GgufType::array;
}
bool is_real(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

Error mistyped(const GgufHeader& header, std::string_view key, const std::string& fault) {
    return make_error(Errc::invalid_argument, header.file_name + ": key " + in_quotes(key) + " " + fault);
}

Error mistyped(const GgufHeader& header, std::string_view key, const GgufValue& found, std::string_view wanted) {
    return mistyped(header, key, "is of type " + std::string(type_text(found.type)) + ", not " + std::string(wanted));
}

}  // namespace

const GgufValue* GgufHeader::find(std::string_view key) const {
    const auto at =
        std::find_if(metadata.begin(), metadata.end(), [&](const auto& entry) { return entry.first == key; });
    return at == metadata.end() ? nullptr : &at->second;
}

const StoredTensor* GgufHeader::tensor(std::string_view name) const {
    const auto at =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Result<std::optional<std::int64_t>> GgufHeader::integer(std::string_view key) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::optional<std::int64_t>();
    if (const auto* value = std::get_if<std::int64_t>(&found->value)) return std::optional(*value);
    if (const auto* value = std::get_if<std::uint64_t>(&found->value)) {
        if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            return mistyped(*this, key, "is " + std::to_string(*value) + ", too large");
        return std::optional(static_cast<std::int64_t>(*value));
    }
    return mistyped(*this, key, *found, "an integer");
}

Result<std::optional<double>> GgufHeader::real(std::string_view key) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::optional<double>();
    if (const auto* value = std::get_if<double>(&found->value)) return std::optional(*value);
    if (const auto* value = std::get_if<std::int64_t>(&found->value)) return std::optional(static_cast<double>(*value));
    if (const auto* value = std::get_if<std::uint64_t>(&found->value))
        return std::optional(static_cast<double>(*value));
    return mistyped(*this, key, *found, "a number");
}

Result<std::optional<bool>> GgufHeader::boolean(std::string_view key) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::optional<bool>();
    if (const auto* value = std::get_if<bool>(&found->value)) return std::optional(*value);
    return mistyped(*this, key, *found, "a truth value");
}

Result<std::optional<std::string>> GgufHeader::text(std::string_view key) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::optional<std::string>();
    if (const auto* value = std::get_if<std::string>(&found->value)) return std::optional(*value);
    return mistyped(*this, key, *found, "a string");
}

Result<const GgufArray*> GgufHeader::array(std::string_view key, GgufType element) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return static_cast<const GgufArray*>(nullptr);
    const std::string wanted = "an array of " + (is_integer(element) ? "integers" : std::string(type_text(element)));
    const auto* array = std::get_if<GgufArray>(&found->value);
    if (array == nullptr) return mistyped(*this, key, *found, wanted);
    const bool fits = array->element == element || (is_integer(element) && is_integer(array->element)) ||
                      (is_real(element) && is_real(array->element));
    if (!fits)
        return mistyped(*this, key, "is an array of " + std::string(type_text(array->element)) + ", not " + wanted);
    return array;
}

Result<GgufHeader> read_gguf_header(const ReadOnlyFile& file, std::uint64_t max_header_bytes,
                                    const std::function<void(std::span<const std::byte>)>& seen) {
    ByteReader in([&](std::uint64_t offset, std::span<std::byte> into) { return file.read(offset, into); },
                  std::min(file.size(), max_header_bytes), seen);
    return parse(in, file.size(), file.name());
}

Result<GgufHeader> read_gguf_header(const std::filesystem::path& path) {
    const auto file = ReadOnlyFile::open(path);
    if (!file) return file.error();
    return read_gguf_header(*file);
}

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, std::string file_name) {
    ByteReader in(
        [&](std::uint64_t offset, std::span<std::byte> into) {
            std::memcpy(into.data(), file.data() + offset, into.size());
            return Result<void>();
        },
        std::min<std::uint64_t>(file.size(), kMaxGgufHeaderBytes));
    return parse(in, file.size(), std::move(file_name));
}

}  // namespace attune
