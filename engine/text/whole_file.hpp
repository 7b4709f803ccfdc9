#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace attune {

/// The bytes of a file of the base's folder; nothing when it cannot be opened. Not for modules' files, which have
/// limits.
std::optional<std::string> read_whole_file(const std::filesystem::path& path);

}  // namespace attune
