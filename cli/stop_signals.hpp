#pragma once

#include <csignal>

#include <chrono>

namespace attune::cli {

/// SIGTERM, SIGINT and SIGHUP, taken by waiting instead of by a handler: blocked in the thread that makes this and in
/// every thread that is started later, so make it first.
class StopSignals {
public:
    StopSignals() {
        sigemptyset(&set_);
        sigaddset(&set_, SIGTERM);
        sigaddset(&set_, SIGINT);
        sigaddset(&set_, SIGHUP);
        pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    }

    /// Sleeps until one comes.
    int wait() const {
        int signal = 0;
        while (sigwait(&set_, &signal) != 0) {
        }
        return signal;
    }

    /// The next one, or 0 when none came within `limit`.
    int wait_for(std::chrono::milliseconds limit) const {
        const timespec time{limit.count() / 1000, (limit.count() % 1000) * 1000000};
        const int signal = sigtimedwait(&set_, nullptr, &time);
        return signal > 0 ? signal : 0;
    }

private:
    sigset_t set_{};
};

}  // namespace attune::cli
