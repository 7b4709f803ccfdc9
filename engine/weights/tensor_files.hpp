#pragma once

#include "engine/files/safetensors.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// A tensor of a model folder and the open file it lies in. Kept for the model's life, so that a weight can be read
/// again; the file is only ever pread.
struct SourceTensor {
    StoredTensor stored;
    std::shared_ptr<const ReadOnlyFile> file;
};

/// All tensors of a Hugging Face folder: model.safetensors, or the shards its index names. In name order.
/// Errors: a missing shard, a tensor in two shards, one the index places elsewhere.
Result<std::map<std::string, SourceTensor>> open_tensor_files(const std::filesystem::path& folder);

/// "[576, 1536]", for messages.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace attune
