#include "engine/files/ggml_type.hpp"

#include <algorithm>

namespace attune {
namespace {

constexpr GgmlType known(std::uint32_t id, std::string_view name, StoredType type) {
    return {id, name, type, static_cast<std::uint32_t>(block_elements(type)),
            static_cast<std::uint32_t>(block_bytes(type))};
}
constexpr GgmlType other(std::uint32_t id, std::string_view name, std::uint32_t elements, std::uint32_t bytes) {
    return {id, name, StoredType::other, elements, bytes};
}

// enum ggml_type of ggml.h; the sizes are those of the blocks in ggml-common.h. The numbers left out belonged to types
// that are gone.
constexpr GgmlType kTypes[] = {
    known(0, "F32", StoredType::f32),    known(1, "F16", StoredType::f16),
    known(2, "Q4_0", StoredType::q4_0),  known(3, "Q4_1", StoredType::q4_1),
    known(6, "Q5_0", StoredType::q5_0),  known(7, "Q5_1", StoredType::q5_1),
    known(8, "Q8_0", StoredType::q8_0),  other(9, "Q8_1", 32, 36),
    known(10, "Q2_K", StoredType::q2_k), known(11, "Q3_K", StoredType::q3_k),
    known(12, "Q4_K", StoredType::q4_k), known(13, "Q5_K", StoredType::q5_k),
    known(14, "Q6_K", StoredType::q6_k), other(15, "Q8_K", 256, 292),
    other(16, "IQ2_XXS", 256, 66),       other(17, "IQ2_XS", 256, 74),
    other(18, "IQ3_XXS", 256, 98),       other(19, "IQ1_S", 256, 50),
    other(20, "IQ4_NL", 32, 18),         other(21, "IQ3_S", 256, 110),
    other(22, "IQ2_S", 256, 82),         other(23, "IQ4_XS", 256, 136),
    known(24, "I8", StoredType::i8),     known(25, "I16", StoredType::i16),
    known(26, "I32", StoredType::i32),   known(27, "I64", StoredType::i64),
    known(28, "F64", StoredType::f64),   other(29, "IQ1_M", 256, 56),
    known(30, "BF16", StoredType::bf16), other(34, "TQ1_0", 256, 54),
    other(35, "TQ2_0", 256, 66),         other(39, "MXFP4", 32, 17),
    other(40, "NVFP4", 64, 36),          other(41, "Q1_0", 128, 18),
};

}  // namespace

const GgmlType* ggml_type(std::uint32_t id) {
    const auto* at = std::lower_bound(std::begin(kTypes), std::end(kTypes), id,
                                      [](const GgmlType& type, std::uint32_t wanted) { return type.id < wanted; });
    return at != std::end(kTypes) && at->id == id ? at : nullptr;
}

}  // namespace attune
