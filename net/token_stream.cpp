#include "net/token_stream.hpp"

namespace attune {

std::shared_ptr<TokenStream> TokenStream::open(const Strand& strand, std::function<void(OutputEvent)> take) {
    auto stream = std::shared_ptr<TokenStream>(new TokenStream(std::move(take)));
    // Weak: the connection owns the stream until close(), after which nothing is to be called.
    stream->bell_ = std::make_shared<Bell>(strand, [weak = std::weak_ptr(stream)] {
        if (const auto alive = weak.lock()) alive->drain();
    });
    return stream;
}

TokenStream::TokenStream(std::function<void(OutputEvent)> take)
    : inbox_([this] { bell_->ring(); }), take_(std::move(take)) {}

void TokenStream::push(OutputEvent event) {
    if (!is_closed_.load(std::memory_order_relaxed)) inbox_.push(std::move(event));
}

void TokenStream::close() {
    is_closed_ = true;
    bell_->close();
}

void TokenStream::drain() {
    do {
        inbox_.drain([this](OutputEvent event) {
            if (!is_closed_) take_(std::move(event));
        });
    } while (!is_closed_ && !inbox_.park());
}

}  // namespace attune
