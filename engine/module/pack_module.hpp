#pragma once

#include "attune/result.hpp"

#include <filesystem>

namespace attune {

/// Writes all regular files below `folder` as an uncompressed tar (POSIX ustar), sorted, without times or owners: the
/// same content gives the same bytes. `out` appears whole or not at all. Errors name files inside the folder:
/// invalid_argument for links and the like, for paths too long for the format, and when `out` exists.
Result<void> pack_module(const std::filesystem::path& folder, const std::filesystem::path& out);

}  // namespace attune
