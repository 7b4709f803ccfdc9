#pragma once

#include <filesystem>
#include <system_error>

namespace attune {

/// A model path is a Hugging Face folder or a GGUF file. Everything that is no folder and is there, or ends in ".gguf",
/// is taken for the latter, so that its reader says what is wrong with it.
inline bool is_gguf_file(const std::filesystem::path& model) {
    std::error_code ignored;
    if (std::filesystem::is_directory(model, ignored)) return false;
    return model.extension() == ".gguf" || std::filesystem::exists(model, ignored);
}

}  // namespace attune
