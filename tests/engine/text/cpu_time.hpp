#pragma once

#include <ctime>

namespace attune {

/// Milliseconds this thread has computed: says the same on a busy machine.
inline double cpu_ms() {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

}  // namespace attune
