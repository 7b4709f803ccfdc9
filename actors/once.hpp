#pragma once

#include "attune/gateway.hpp"
#include "attune/token_sink.hpp"

#include <atomic>
#include <memory>
#include <utility>

namespace attune {

/// A request's sink with the promise built in: exactly one Finished or Failed reaches the client, as the last event.
/// A job lost on the way (a mailbox closed, an actor gone) ends when its last owner drops it.
class OnceSink final : public TokenSink {
public:
    explicit OnceSink(std::shared_ptr<TokenSink> client) : client_(std::move(client)) {}
    ~OnceSink() override { fail(make_error(Errc::unavailable, "the server stopped before the answer was complete")); }
    OnceSink(const OnceSink&) = delete;
    OnceSink& operator=(const OnceSink&) = delete;

    void push(OutputEvent event) override {
        const bool last = std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event);
        if (last ? ended_.exchange(true) : ended_.load()) return;
        client_->push(std::move(event));
    }
    void fail(Error error) { push(Failed{std::move(error)}); }
    /// Any thread.
    bool ended() const { return ended_.load(); }

private:
    std::shared_ptr<TokenSink> client_;
    std::atomic<bool> ended_{false};
};

/// A Gateway reply on its way through mailboxes: called exactly once, by whoever drops it last if by nobody else.
template <class T>
class OnceReply {
public:
    explicit OnceReply(Reply<T> reply) : reply_(std::move(reply)) {}
    ~OnceReply() { (*this)(make_error(Errc::unavailable, "the server is stopping")); }
    OnceReply(const OnceReply&) = delete;
    OnceReply& operator=(const OnceReply&) = delete;

    void operator()(Result<T> result) {
        if (!called_.exchange(true) && reply_) reply_(std::move(result));
    }

private:
    Reply<T> reply_;
    std::atomic<bool> called_{false};
};

template <class T>
using OnceReplyPtr = std::shared_ptr<OnceReply<T>>;

template <class T>
OnceReplyPtr<T> once(Reply<T> reply) {
    return std::make_shared<OnceReply<T>>(std::move(reply));
}

}  // namespace attune
