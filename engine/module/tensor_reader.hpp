#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace attune {

class GenerationHash;

/// The product of a tensor's extents.
std::size_t element_count(const StoredTensor& tensor);

/// F32, F16 or BF16: the types that adapters and states may have.
bool has_plain_values(const StoredTensor& tensor);

/// The tensors that hold values, as they lie in the file: a hash is of its bytes, each read once and in order.
std::vector<const StoredTensor*> in_file_order(const std::vector<StoredTensor>& tensors);

/// Reads tensors of a module's file slice by slice, so that no second copy of the file is ever in memory. What is
/// parsed is what is hashed.
class TensorReader {
public:
    TensorReader(const ReadOnlyFile& file, GenerationHash& hash);

    /// Elements [first, first + into.size()) of a tensor; whole blocks. Every value must be finite.
    Result<void> read(const StoredTensor& tensor, std::size_t first, std::span<float> into);
    /// Bytes between tensors, which only the hash sees.
    Result<void> pass(std::uint64_t begin, std::uint64_t end);

private:
    const ReadOnlyFile& file_;
    GenerationHash& hash_;
    std::vector<std::byte> slice_;
};

}  // namespace attune
