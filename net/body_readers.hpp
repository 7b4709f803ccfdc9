#pragma once

#include "net/strand.hpp"

#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <cstdint>
#include <functional>

namespace attune {

/// Threads that read large bodies, so that one of many megabytes holds up its own connection and no other. A connection
/// waits for its body, so each has one here at a time. Thread-safe.
class BodyReaders {
public:
    /// Reading this much JSON takes an IO thread about a millisecond; more is read here.
    static constexpr std::uint64_t kSmallBytes = 64u << 10;

    /// `limit_bytes`: of all bodies that are being read or wait for it. One alone may be larger.
    explicit BodyReaders(std::uint64_t limit_bytes);
    ~BodyReaders();

    /// Calls `read` on one of the threads, the caller waiting on its own strand. False: too much waits already, and
    /// nothing was called. `read` is a named object of the caller, which outlives the wait.
    asio::awaitable<bool> run(std::uint64_t bytes, const std::function<void()>& read);

    /// Gives free memory back to the system, soon: what a large body and its values took stays with malloc otherwise.
    void release_memory();

private:
    bool admit(std::uint64_t bytes);

    const std::uint64_t limit_bytes_;
    std::atomic<std::uint64_t> held_bytes_{0};
    std::atomic<bool> is_releasing_{false};
    asio::thread_pool pool_;
};

}  // namespace attune
