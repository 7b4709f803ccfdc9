#include "engine/sample/output_text.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

struct StopMatch {
    std::size_t begin = 0;
    std::size_t end = 0;
    const std::string* stop = nullptr;
};

/// The match that completes first, as if the text had come byte by byte; the order of `stops` decides between equals.
/// Only matches that end after `from` count.
std::optional<StopMatch> first_match(const std::string& text, std::size_t from, const std::vector<std::string>& stops) {
    std::optional<StopMatch> best;
    for (const std::string& stop : stops) {
        const std::size_t start = from >= stop.size() ? from - stop.size() + 1 : 0;
        const std::size_t begin = text.find(stop, start);
        if (begin == std::string::npos) continue;
        const std::size_t end = begin + stop.size();
        if (!best || end < best->end) best = StopMatch{begin, end, &stop};
    }
    return best;
}

}  // namespace

OutputText::OutputText(const Tokenizer* tokenizer, const SamplingParams& params)
    : tokenizer_(tokenizer),
      skip_special_tokens_(params.skip_special_tokens),
      stops_(params.stop),
      include_stop_(params.include_stop_str_in_output),
      min_tokens_(params.min_tokens),
      stream_(tokenizer == nullptr ? nullptr : tokenizer->stream(params.skip_special_tokens)) {}

OutputText::Piece OutputText::push(TokenId id) {
    ++tokens_;
    const std::size_t old_bytes = unsent_.size();
    unsent_ += decode(id);
    // As in vLLM: a stop string ends the text only when it completes after min_tokens.
    if (tokens_ > min_tokens_) {
        if (const auto match = first_match(unsent_, old_bytes, stops_)) {
            Piece piece{release(include_stop_ ? match->end : match->begin), *match->stop};
            unsent_.clear();
            stream_ = nullptr;
            return piece;
        }
    }
    return {release(unsent_.size() - held_bytes()), std::nullopt};
}

std::string OutputText::finish() {
    if (stream_) unsent_ += stream_->flush();
    stream_ = nullptr;
    return release(unsent_.size());
}

void OutputText::rollback(std::span<const TokenId> remaining) {
    tokens_ = static_cast<int>(remaining.size());
    if (tokenizer_ == nullptr) return;
    const std::size_t handed_out = sent_bytes_;
    stream_ = tokenizer_->stream(skip_special_tokens_);
    unsent_.clear();
    sent_ahead_ = 0;
    for (const TokenId id : remaining) unsent_ += decode(id);
    const std::size_t again = std::min(handed_out, unsent_.size());
    unsent_.erase(0, again);
    sent_ahead_ = handed_out - again;
}

std::string OutputText::decode(TokenId id) {
    if (!stream_) return {};
    std::string text = stream_->push(id);
    const std::size_t again = std::min(sent_ahead_, text.size());
    sent_ahead_ -= again;
    return text.substr(again);
}

/// Length of the longest tail of unsent_ that a stop string begins with.
std::size_t OutputText::held_bytes() const {
    std::size_t held = 0;
    for (const std::string& stop : stops_) {
        for (std::size_t length = std::min(stop.size() - 1, unsent_.size()); length > held; --length) {
            if (unsent_.compare(unsent_.size() - length, length, stop, 0, length) == 0) {
                held = length;
                break;
            }
        }
    }
    return held;
}

std::string OutputText::release(std::size_t bytes) {
    std::string text = unsent_.substr(0, bytes);
    unsent_.erase(0, bytes);
    sent_bytes_ += text.size();
    return text;
}

}  // namespace attune
