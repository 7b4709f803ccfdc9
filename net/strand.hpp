#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <functional>
#include <memory>
#include <mutex>

namespace attune {

namespace asio = boost::asio;

/// One connection's executor: everything of the connection runs on it, one thing at a time.
using Strand = asio::any_io_executor;

/// Completion token of every I/O await: errors are values.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

/// Wakes one waiting coroutine of the same strand. A notice that comes before the wait is not lost; several count once.
class Signal {
public:
    explicit Signal(const Strand& strand) : timer_(strand) {}
    void notify();
    asio::awaitable<void> wait();

private:
    asio::steady_timer timer_;
    bool is_set_ = false;
    bool is_waiting_ = false;
};

/// Calls a function on a strand when any thread rings. May outlive the strand once it is closed.
class Bell : public std::enable_shared_from_this<Bell> {
public:
    Bell(Strand strand, std::function<void()> on_ring) : strand_(std::move(strand)), on_ring_(std::move(on_ring)) {}
    /// Any thread.
    void ring();
    /// On the strand: nothing is called from now on, and the strand is let go.
    void close();

private:
    std::mutex mutex_;  // guards strand_ against close(); taken only when the owner sleeps
    Strand strand_;
    std::function<void()> on_ring_;
    bool is_closed_ = false;
};

/// Calls a function when the armed time is over. On its strand only.
class Deadline {
public:
    Deadline(const Strand& strand, std::function<void()> on_expiry);
    ~Deadline();
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

    /// Replaces an earlier time.
    void arm(double seconds);
    void disarm();

private:
    struct State {
        std::function<void()> on_expiry;
        unsigned turn = 0;  ///< a timer that already fired belongs to an older turn
    };

    asio::steady_timer timer_;
    std::shared_ptr<State> state_;
};

}  // namespace attune
