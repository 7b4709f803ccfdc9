#pragma once

#include "engine/files/stored_tensor.hpp"

#include <cstdint>
#include <string_view>

namespace attune {

/// An element type of ggml as GGUF files number them.
struct GgmlType {
    std::uint32_t id;
    std::string_view name;  ///< "Q4_K"
    StoredType type;        ///< `other` for types whose values nobody here reads
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
};

/// Null for a number that stands for no type, or no more.
const GgmlType* ggml_type(std::uint32_t id);

}  // namespace attune
