#include "engine/free_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace attune {
namespace {

/// MemAvailable of /proc/meminfo.
std::optional<std::uint64_t> available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string key;
    while (file >> key) {
        std::uint64_t kilobytes = 0;
        if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return std::nullopt;
}

/// A number in a file; nothing when it is missing or says "max".
std::optional<std::uint64_t> number_in(const char* path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    if (file >> value) return value;
    return std::nullopt;
}

}  // namespace

std::uint64_t free_memory_bytes() {
    constexpr std::uint64_t kUnknown = 2ULL << 30;
    std::uint64_t free = available_bytes().value_or(kUnknown);
    const auto limit = number_in("/sys/fs/cgroup/memory.max");
    const auto used = number_in("/sys/fs/cgroup/memory.current");
    if (limit && used) free = std::min(free, *limit > *used ? *limit - *used : 0);
    return free;
}

}  // namespace attune
