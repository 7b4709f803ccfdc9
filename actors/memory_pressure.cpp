#include "actors/memory_pressure.hpp"

#include <cstdint>
#include <fstream>
#include <string>

namespace attune {

double memory_pressure() {
    std::ifstream limit_file("/sys/fs/cgroup/memory.max");
    std::uint64_t limit = 0;
    if (!(limit_file >> limit) || limit == 0) return 0.0;  // "max", or no cgroup v2
    std::ifstream stat("/sys/fs/cgroup/memory.stat");
    std::string key;
    std::uint64_t bytes = 0;
    while (stat >> key >> bytes)
        if (key == "anon") return static_cast<double>(bytes) / static_cast<double>(limit);
    return 0.0;
}

}  // namespace attune
