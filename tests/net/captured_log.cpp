#include "attune/log.hpp"
#include "net/net_fixture.hpp"

#include <mutex>

namespace attune {
namespace {

std::mutex mutex;
std::vector<std::string> lines;

}  // namespace

void log(LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(text);
}

std::vector<std::string> take_log() {
    const std::lock_guard lock(mutex);
    return std::exchange(lines, {});
}

}  // namespace attune
