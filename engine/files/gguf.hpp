#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

/// Value types of GGUF metadata, numbered as in the file.
enum class GgufType : std::uint8_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// An array of metadata: one of the vectors is filled, by element type. Booleans lie in `integers`.
struct GgufArray {
    GgufType element = GgufType::u8;
    std::vector<std::uint64_t> integers;  ///< signed ones as two's complement
    std::vector<double> reals;
    std::vector<std::string> strings;  ///< valid UTF-8
    std::vector<GgufArray> arrays;
    std::size_t size() const { return integers.size() + reals.size() + strings.size() + arrays.size(); }
};

struct GgufValue {
    GgufType type = GgufType::u8;
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufArray> value;
};

/// The checked head of a GGUF file, versions 2 and 3 (the ggml project's gguf.md): counts, offsets, alignment and sizes
/// are those the format demands and lie inside the file. Errors name the file (never its folder) and the key or tensor.
struct GgufHeader {
    std::string file_name;
    std::uint32_t version = 0;
    std::uint64_t alignment = 32;
    std::vector<std::pair<std::string, GgufValue>> metadata;  ///< in file order, keys once each
    /// In name order. `type_name` is ggml's ("Q4_K"), `shape` is ne reversed (row-major, as everywhere here), `begin`
    /// counts from the start of the file.
    std::vector<StoredTensor> tensors;
    std::uint64_t file_bytes = 0;

    const GgufValue* find(std::string_view key) const;
    const StoredTensor* tensor(std::string_view name) const;

    /// Typed looks at one key: nothing when it is absent, Errc::invalid_argument naming the key when it has another
    /// type. Any integer type counts as an integer when the value fits, f32 and f64 as a real (integers too).
    Result<std::optional<std::int64_t>> integer(std::string_view key) const;
    Result<std::optional<double>> real(std::string_view key) const;
    Result<std::optional<bool>> boolean(std::string_view key) const;
    Result<std::optional<std::string>> text(std::string_view key) const;
    /// Null when absent; a type error unless it is an array of `element` (any integer type for integers, any real type
    /// for reals).
    Result<const GgufArray*> array(std::string_view key, GgufType element) const;
};

/// A vocabulary of 256 thousand tokens with its merges makes a header of about 15 MB.
inline constexpr std::uint64_t kMaxGgufHeaderBytes = 100'000'000;

/// Reads and checks the header only, with pread through a small buffer.
Result<GgufHeader> read_gguf_header(const std::filesystem::path& path);
/// The same from a file already open, refusing a header over `max_header_bytes`. `seen` gets the bytes from the file's
/// start to the end of the header, once and in order: what is parsed is what is hashed. The padding before the data is
/// no part of it.
Result<GgufHeader> read_gguf_header(const ReadOnlyFile& file, std::uint64_t max_header_bytes = kMaxGgufHeaderBytes,
                                    const std::function<void(std::span<const std::byte>)>& seen = {});
/// The same from bytes already in memory.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, std::string file_name);

}  // namespace attune
