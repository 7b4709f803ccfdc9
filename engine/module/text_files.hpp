#pragma once

#include "attune/result.hpp"

#include <filesystem>

namespace attune {

/// Trainers like to save the base's tokenizer and chat template beside an adapter. The base's own are harmless; others
/// would change what a request means, which is not supported yet: Errc::invalid_module naming the file.
/// `base_folder` empty: any such file is refused.
Result<void> check_text_files(const std::filesystem::path& module_folder, const std::filesystem::path& base_folder);

}  // namespace attune
