#pragma once

#include "engine/files/stored_tensor.hpp"

#include <cstddef>

namespace attune {

/// Decodes `blocks` whole blocks of a ggml block format (q4_0 to q6_k) into blocks * block_elements(type) floats; false
/// for any other type. The values are gguf-py's bit for bit.
bool dequantize(StoredType type, const std::byte* from, float* to, std::size_t blocks);

}  // namespace attune
