#include "actors/memory_pressure.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace attune {
namespace {

/// First number behind `key` in a file of "key number" lines; 0 when there is none.
std::uint64_t number_of(const char* file, const std::string& key) {
    std::ifstream lines(file);
    for (std::string word; lines >> word;)
        if (std::uint64_t number = 0; word == key && lines >> number) return number;
    return 0;
}

double share(std::uint64_t used, std::uint64_t limit) {
    return limit == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(limit);
}

}  // namespace

double memory_pressure() {
    std::ifstream limit_file("/sys/fs/cgroup/memory.max");
    std::uint64_t limit = 0;
    if (!(limit_file >> limit)) limit = 0;  // "max", or no cgroup v2
    const double cgroup = share(limit ? number_of("/sys/fs/cgroup/memory.stat", "anon") : 0, limit);
    const double process =
        share(number_of("/proc/self/status", "RssAnon:"), number_of("/proc/meminfo", "MemTotal:"));  // both in KiB
    return std::max(cgroup, process);
}

}  // namespace attune
