#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace attune {

/// Where a member's bytes lie in an archive.
struct TarMember {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
};

/// The regular files of an uncompressed tar (POSIX ustar with pax or GNU long names), by path. Paths are relative and
/// in normal form; folders are passed over. Errc::invalid_module naming the member for links, devices, paths that leave
/// the archive, two members of one name, a damaged header or more than `max_files` files.
Result<std::map<std::string, TarMember>> read_tar_index(const ReadOnlyFile& file, int max_files);

}  // namespace attune
