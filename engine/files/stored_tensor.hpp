#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attune {

/// Element types of the file formats: safetensors' own, then ggml's block formats, which pack a fixed number of
/// neighbouring values of a row with their scales. `other` is a type known by name and size only: fine in a header,
/// refused by whoever wants values.
enum class StoredType : std::uint8_t {
    f64,
    f32,
    f16,
    bf16,
    i64,
    i32,
    i16,
    i8,
    u64,
    u32,
    u16,
    u8,
    boolean,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q8_0,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    other
};

struct StoredTensor {
    std::string name;
    std::string type_name;  ///< as in the file, e.g. "BF16"; in GGUF ggml's, e.g. "Q4_K"
    StoredType type = StoredType::other;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< byte offset from the start of the file
    std::uint64_t bytes = 0;
};

/// Values a block holds: 1 for plain types. The last extent of a tensor's shape is a multiple of it.
constexpr std::size_t block_elements(StoredType type) {
    if (type >= StoredType::q4_0 && type <= StoredType::q8_0) return 32;
    if (type >= StoredType::q2_k && type <= StoredType::q6_k) return 256;
    return 1;
}

/// Bytes of a block, of one element for plain types; 0 for `other`.
constexpr std::size_t block_bytes(StoredType type) {
    switch (type) {
        case StoredType::f64:
        case StoredType::i64:
        case StoredType::u64:
            return 8;
        case StoredType::f32:
        case StoredType::i32:
        case StoredType::u32:
            return 4;
        case StoredType::f16:
        case StoredType::bf16:
        case StoredType::i16:
        case StoredType::u16:
            return 2;
        case StoredType::i8:
        case StoredType::u8:
        case StoredType::boolean:
            return 1;
        case StoredType::q4_0:
            return 18;
        case StoredType::q4_1:
            return 20;
        case StoredType::q5_0:
            return 22;
        case StoredType::q5_1:
            return 24;
        case StoredType::q8_0:
            return 34;
        case StoredType::q2_k:
            return 84;
        case StoredType::q3_k:
            return 110;
        case StoredType::q4_k:
            return 144;
        case StoredType::q5_k:
            return 176;
        case StoredType::q6_k:
            return 210;
        case StoredType::other:
            break;
    }
    return 0;
}

/// Converts `count` stored elements (F32, F16, BF16, F64, and whole blocks of Q4_0 to Q6_K) to float, bit for bit as
/// the formats' own libraries do; `from` may lie at any byte. False for any other type and for a count that ends within
/// a block.
bool convert_to_f32(StoredType type, const std::byte* from, float* to, std::size_t count);

}  // namespace attune
