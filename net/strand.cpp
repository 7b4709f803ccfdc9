#include "net/strand.hpp"

#include <boost/asio/post.hpp>
#include <chrono>

namespace attune {

void Signal::notify() {
    is_set_ = true;
    if (!is_waiting_) return;
    is_waiting_ = false;
    timer_.cancel();
}

asio::awaitable<void> Signal::wait() {
    while (!is_set_) {
        is_waiting_ = true;
        timer_.expires_at(asio::steady_timer::time_point::max());
        co_await timer_.async_wait(kAwait);
    }
    is_waiting_ = false;
    is_set_ = false;
}

void Bell::ring() {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    asio::post(strand_, [self = shared_from_this()] {
        if (!self->is_closed_) self->on_ring_();
    });
}

void Bell::close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    strand_ = Strand();
}

Deadline::Deadline(const Strand& strand, std::function<void()> on_expiry)
    : timer_(strand), state_(std::make_shared<State>()) {
    state_->on_expiry = std::move(on_expiry);
}

Deadline::~Deadline() { ++state_->turn; }

void Deadline::arm(double seconds) {
    const unsigned turn = ++state_->turn;
    timer_.expires_after(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds)));
    timer_.async_wait([state = state_, turn](const boost::system::error_code& failure) {
        if (!failure && turn == state->turn) state->on_expiry();
    });
}

void Deadline::disarm() {
    ++state_->turn;
    timer_.cancel();
}

}  // namespace attune
