#pragma once

#include "engine/files/safetensors.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// A tensor of a model and the open file it lies in. Kept for the model's life, so that a weight can be read again; the
/// file is only ever pread.
struct SourceTensor {
    StoredTensor stored;
    std::shared_ptr<const ReadOnlyFile> file;
    /// Rows (of a vector: values) per head when each head's lie as rotary pairs, see unpair_rows; 0: they do not.
    std::int64_t paired_rows = 0;
};

/// All tensors of a GGUF file, or of a Hugging Face folder: model.safetensors, or the shards its index names. By the
/// names in the files, in their order. Errors: a missing shard, a tensor in two shards, one the index places elsewhere.
Result<std::map<std::string, SourceTensor>> open_tensor_files(const std::filesystem::path& model);

}  // namespace attune
