#include "engine/files/gguf_parser.hpp"

#include "attune/utf8.hpp"
#include "engine/files/ggml_type.hpp"
#include "engine/files/quote.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>

namespace attune {
namespace {

constexpr std::uint32_t kBigEndianVersion3 = 0x03000000;
constexpr std::uint64_t kMaxNameBytes = 65535;    // the format's, for keys
constexpr std::uint64_t kMaxAlignment = 1 << 20;  // ggml's
constexpr std::uint32_t kMaxDimensions = 4;       // ggml's
constexpr int kMaxArrayDepth = 4;                 // the format allows arrays of arrays, nobody writes them
// The fewest bytes an entry of each kind takes: what a count must at least find in the file.
constexpr std::uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr std::array<std::uint64_t, 13> kMinValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 4 + 8, 8, 8, 8};

// ggml's tensor extents: the first one runs fastest.
std::string extents_text(const std::vector<std::int64_t>& shape) {
    return shape_text(std::vector<std::int64_t>(shape.rbegin(), shape.rend()));
}

}  // namespace

bool GgufParser::parse() {
    return parse_counts() && parse_metadata() && read_alignment() && parse_tensors() && place_tensors() &&
           check_overlaps();
}

bool GgufParser::refuse(const std::string& fault) {
    error_ = make_error(Errc::invalid_module, header_.file_name + ": " + (place_.empty() ? "" : place_ + ": ") + fault);
    return false;
}

bool GgufParser::ends_early() {
    if (in_.error()) {
        error_ = *in_.error();
        return false;
    }
    const std::uint64_t end = in_.position() + in_.left();
    if (end < header_.file_bytes) return refuse("the header goes beyond " + std::to_string(end) + " bytes, the limit");
    return refuse("the file ends here: it is cut short");
}

bool GgufParser::parse_counts() {
    std::array<char, 4> magic;
    if (in_.left() < magic.size() || !in_.read(std::as_writable_bytes(std::span(magic))) ||
        std::memcmp(magic.data(), "GGUF", magic.size()) != 0)
        return in_.error() ? ends_early() : refuse("the file does not begin with GGUF");
    place_ = "the version";
    if (!in_.read(header_.version)) return ends_early();
    place_.clear();
    if (header_.version == kBigEndianVersion3)
        return refuse("the file is big-endian; only little-endian ones are read");
    if (header_.version != 2 && header_.version != 3)
        return refuse("the file is of GGUF version " + std::to_string(header_.version) + "; 2 and 3 are read");
    place_ = "the counts of tensors and keys";
    if (!in_.read(tensor_count_) || !in_.read(metadata_count_)) return ends_early();
    place_.clear();
    if (metadata_count_ > in_.left() / kMinMetadataBytes)
        return refuse(std::to_string(metadata_count_) + " keys do not fit into the " + std::to_string(in_.left()) +
                      " bytes that follow");
    if (tensor_count_ > in_.left() / kMinTensorBytes)
        return refuse(std::to_string(tensor_count_) + " tensors do not fit into the " + std::to_string(in_.left()) +
                      " bytes that follow");
    return true;
}

bool GgufParser::parse_metadata() {
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
        place_ = "key " + std::to_string(i + 1) + " of " + std::to_string(metadata_count_);
        std::string key;
        if (!parse_name(key)) return false;
        place_ = "key " + in_quotes(key);
        auto& [name, value] = header_.metadata.emplace_back(std::move(key), GgufValue{});
        if (!parse_value(value)) return false;
    }
    place_.clear();
    std::vector<std::string_view> keys;
    keys.reserve(header_.metadata.size());
    for (const auto& [name, value] : header_.metadata) keys.push_back(name);
    std::sort(keys.begin(), keys.end());
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
        return refuse("key " + in_quotes(*twice) + " appears twice");
    return true;
}

bool GgufParser::parse_value(GgufValue& value) {
    std::uint32_t type = 0;
    if (!in_.read(type)) return ends_early();
    if (type >= kMinValueBytes.size()) return refuse("its value is of unknown type " + std::to_string(type));
    value.type = static_cast<GgufType>(type);
    const auto number = [&]<class Wide, class T>(Wide, T raw) {
        if (!in_.read(raw)) return ends_early();
        value.value = static_cast<Wide>(raw);
        return true;
    };
    switch (value.type) {
        case GgufType::u8:
            return number(std::uint64_t{}, std::uint8_t{});
        case GgufType::u16:
            return number(std::uint64_t{}, std::uint16_t{});
        case GgufType::u32:
            return number(std::uint64_t{}, std::uint32_t{});
        case GgufType::u64:
            return number(std::uint64_t{}, std::uint64_t{});
        case GgufType::i8:
            return number(std::int64_t{}, std::int8_t{});
        case GgufType::i16:
            return number(std::int64_t{}, std::int16_t{});
        case GgufType::i32:
            return number(std::int64_t{}, std::int32_t{});
        case GgufType::i64:
            return number(std::int64_t{}, std::int64_t{});
        case GgufType::f32:
            return number(double{}, float{});
        case GgufType::f64:
            return number(double{}, double{});
        case GgufType::boolean:
            return parse_boolean(value.value.emplace<bool>());
        case GgufType::string:
            return parse_string(value.value.emplace<std::string>());
        case GgufType::array:
            return parse_array(value.value.emplace<GgufArray>(), 1);
    }
    return false;
}

bool GgufParser::parse_array(GgufArray& array, int depth) {
    if (depth > kMaxArrayDepth) return refuse("its arrays are more than " + std::to_string(kMaxArrayDepth) + " deep");
    std::uint32_t type = 0;
    std::uint64_t count = 0;
    if (!in_.read(type)) return ends_early();
    if (type >= kMinValueBytes.size())
        return refuse("the elements of its array are of unknown type " + std::to_string(type));
    if (!in_.read(count)) return ends_early();
    if (count > in_.left() / kMinValueBytes[type])
        return refuse("its array of " + std::to_string(count) + " elements does not fit into the " +
                      std::to_string(in_.left()) + " bytes that follow");
    array.element = static_cast<GgufType>(type);
    return parse_elements(array, count, depth);
}

template <class T, class Into>
bool GgufParser::parse_numbers(Into& into, std::uint64_t count) {
    into.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        T raw;
        if (!in_.read(raw)) return ends_early();
        into.push_back(static_cast<typename Into::value_type>(raw));  // sign-extends what is signed
    }
    return true;
}

bool GgufParser::parse_elements(GgufArray& array, std::uint64_t count, int depth) {
    switch (array.element) {
        case GgufType::u8:
            return parse_numbers<std::uint8_t>(array.integers, count);
        case GgufType::u16:
            return parse_numbers<std::uint16_t>(array.integers, count);
        case GgufType::u32:
            return parse_numbers<std::uint32_t>(array.integers, count);
        case GgufType::u64:
            return parse_numbers<std::uint64_t>(array.integers, count);
        case GgufType::i8:
            return parse_numbers<std::int8_t>(array.integers, count);
        case GgufType::i16:
            return parse_numbers<std::int16_t>(array.integers, count);
        case GgufType::i32:
            return parse_numbers<std::int32_t>(array.integers, count);
        case GgufType::i64:
            return parse_numbers<std::int64_t>(array.integers, count);
        case GgufType::f32:
            return parse_numbers<float>(array.reals, count);
        case GgufType::f64:
            return parse_numbers<double>(array.reals, count);
        case GgufType::boolean:
            array.integers.reserve(count);
            for (std::uint64_t i = 0; i < count; ++i) {
                bool value = false;
                if (!parse_boolean(value)) return false;
                array.integers.push_back(value ? 1 : 0);
            }
            return true;
        case GgufType::string:
            array.strings.reserve(count);
            for (std::uint64_t i = 0; i < count; ++i)
                if (!parse_string(array.strings.emplace_back())) return false;
            return true;
        case GgufType::array:
            array.arrays.reserve(count);
            for (std::uint64_t i = 0; i < count; ++i)
                if (!parse_array(array.arrays.emplace_back(), depth + 1)) return false;
            return true;
    }
    return false;
}

bool GgufParser::parse_boolean(bool& value) {
    std::uint8_t raw = 0;
    if (!in_.read(raw)) return ends_early();
    if (raw > 1) return refuse("its truth value is " + std::to_string(raw) + ", neither 0 nor 1");
    value = raw == 1;
    return true;
}

bool GgufParser::parse_string(std::string& value) {
    std::uint64_t length = 0;
    if (!in_.read(length)) return ends_early();
    if (length > in_.left())
        return refuse("a string of " + std::to_string(length) + " bytes does not fit into the " +
                      std::to_string(in_.left()) + " that follow");
    value.resize(static_cast<std::size_t>(length));
    if (!in_.read(std::as_writable_bytes(std::span(value)))) return ends_early();
    return is_valid_utf8(value) || refuse("a string is not valid UTF-8");
}

// Keys and tensor names. A NUL would end them for other readers, so two names could be one there.
bool GgufParser::parse_name(std::string& name) {
    if (!parse_string(name)) return false;
    if (name.empty()) return refuse("its name is empty");
    if (name.size() > kMaxNameBytes)
        return refuse("its name has " + std::to_string(name.size()) + " bytes, the limit is " +
                      std::to_string(kMaxNameBytes));
    return name.find('\0') == std::string::npos || refuse("its name holds a NUL byte");
}

bool GgufParser::read_alignment() {
    const GgufValue* value = header_.find("general.alignment");
    if (value == nullptr) return true;
    place_ = "key \"general.alignment\"";
    if (value->type != GgufType::u32) return refuse("the alignment is not a number of type u32");
    header_.alignment = std::get<std::uint64_t>(value->value);
    if (header_.alignment == 0 || (header_.alignment & (header_.alignment - 1)) != 0)
        return refuse("an alignment of " + std::to_string(header_.alignment) + " is no power of two");
    if (header_.alignment > kMaxAlignment)
        return refuse("an alignment of " + std::to_string(header_.alignment) + " is over the limit of " +
                      std::to_string(kMaxAlignment));
    place_.clear();
    return true;
}

bool GgufParser::parse_tensors() {
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
        place_ = "tensor " + std::to_string(i + 1) + " of " + std::to_string(tensor_count_);
        if (!parse_tensor(header_.tensors.emplace_back())) return false;
    }
    place_.clear();
    return true;
}

// Leaves the offset in the data in `begin`; where the data begin is known after the last tensor.
bool GgufParser::parse_tensor(StoredTensor& tensor) {
    if (!parse_name(tensor.name)) return false;
    place_ = "tensor " + in_quotes(tensor.name);
    std::uint32_t dimensions = 0;
    if (!in_.read(dimensions)) return ends_early();
    if (dimensions > kMaxDimensions)
        return refuse("it has " + std::to_string(dimensions) + " dimensions, the limit is " +
                      std::to_string(kMaxDimensions));
    // A zero among them is no excuse: whoever multiplies in another order would overflow before meeting it.
    std::uint64_t without_zeros = 1;
    bool empty = false;
    tensor.shape.resize(dimensions);
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
        std::uint64_t raw = 0;
        if (!in_.read(raw)) return ends_early();
        if (raw > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
            __builtin_mul_overflow(without_zeros, std::max<std::uint64_t>(raw, 1), &without_zeros))
            return refuse("its extents overflow");
        empty = empty || raw == 0;
        *extent = static_cast<std::int64_t>(raw);
    }
    const std::uint64_t elements = empty ? 0 : without_zeros;
    std::uint32_t type_id = 0;
    if (!in_.read(type_id) || !in_.read(tensor.begin)) return ends_early();
    const GgmlType* type = ggml_type(type_id);
    if (type == nullptr) return refuse("ggml's type " + std::to_string(type_id) + " is unknown");
    tensor.type = type->type;
    tensor.type_name = type->name;
    const std::uint64_t row = dimensions == 0 ? 1 : static_cast<std::uint64_t>(tensor.shape.back());
    if (row % type->block_elements != 0)
        return refuse("its rows of " + std::to_string(row) + " values do not fill whole " + tensor.type_name +
                      " blocks of " + std::to_string(type->block_elements));
    if (__builtin_mul_overflow(elements / type->block_elements, type->block_bytes, &tensor.bytes))
        return refuse("its size overflows");
    return true;
}

bool GgufParser::place_tensors() {
    const std::uint64_t mask = header_.alignment - 1;
    const std::uint64_t data_begin = (in_.position() + mask) & ~mask;
    // A file without tensors need not be padded up to its data.
    const std::uint64_t data_bytes = header_.file_bytes - std::min(data_begin, header_.file_bytes);
    for (StoredTensor& tensor : header_.tensors) {
        place_ = "tensor " + in_quotes(tensor.name);
        if ((tensor.begin & mask) != 0)
            return refuse("its offset " + std::to_string(tensor.begin) + " is no multiple of the alignment, " +
                          std::to_string(header_.alignment));
        if (data_begin > header_.file_bytes || tensor.begin > data_bytes || tensor.bytes > data_bytes - tensor.begin)
            return refuse("its " + std::to_string(tensor.bytes) + " bytes (" + tensor.type_name + ", extents " +
                          extents_text(tensor.shape) + ") at offset " + std::to_string(tensor.begin) +
                          " do not lie in the " + std::to_string(data_bytes) + " bytes of data");
        tensor.begin += data_begin;
    }
    place_.clear();
    std::sort(header_.tensors.begin(), header_.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(header_.tensors.begin(), header_.tensors.end(),
                           [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
    return twice == header_.tensors.end() || refuse("tensor " + in_quotes(twice->name) + " appears twice");
}

bool GgufParser::check_overlaps() {
    std::vector<const StoredTensor*> by_place;
    by_place.reserve(header_.tensors.size());
    for (const StoredTensor& tensor : header_.tensors)
        if (tensor.bytes > 0) by_place.push_back(&tensor);
    std::sort(by_place.begin(), by_place.end(),
              [](const StoredTensor* a, const StoredTensor* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < by_place.size(); ++i)
        if (by_place[i]->begin < by_place[i - 1]->begin + by_place[i - 1]->bytes)
            return refuse("tensor " + in_quotes(by_place[i]->name) + " shares bytes with tensor " +
                          in_quotes(by_place[i - 1]->name));
    return true;
}

}  // namespace attune
