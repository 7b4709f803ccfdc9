#pragma once

#include "attune/result.hpp"
#include "engine/module/package_files.hpp"

#include <filesystem>

namespace attune {

/// Trainers like to save the base's tokenizer and chat template beside an adapter. The base's own are harmless; others
/// would change what a request means, which is not supported yet: Errc::invalid_module naming the file.
/// `folder` is relative to the package, "" for its top. `base_folder` empty: any such file is refused.
Result<void> check_text_files(const PackageFiles& files, const std::filesystem::path& folder,
                              const std::filesystem::path& base_folder);

}  // namespace attune
