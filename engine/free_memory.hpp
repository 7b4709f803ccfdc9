#pragma once

#include <cstdint>

namespace attune {

/// Bytes this process may still take: what the kernel calls available, within its cgroup's limit.
std::uint64_t free_memory_bytes();

}  // namespace attune
