#pragma once

#include "attune/inbox.hpp"
#include "attune/token_sink.hpp"
#include "net/strand.hpp"

#include <atomic>
#include <functional>
#include <memory>

namespace attune {

/// The sink of one prompt: events cross from the executor's thread to a connection's strand through an Inbox whose bell
/// is a post. All events that are there when the strand wakes are taken at once.
class TokenStream final : public TokenSink {
public:
    /// `take` is called on the strand, in order, until close().
    static std::shared_ptr<TokenStream> open(const Strand& strand, std::function<void(OutputEvent)> take);

    void push(OutputEvent event) override;
    /// On the strand: later events are dropped. The executor may hold the sink for longer than the connection lives.
    void close();

private:
    explicit TokenStream(std::function<void(OutputEvent)> take);
    void drain();

    std::shared_ptr<Bell> bell_;
    Inbox<OutputEvent> inbox_;
    std::function<void(OutputEvent)> take_;
    std::atomic<bool> is_closed_{false};
};

}  // namespace attune
