#pragma once

#include "attune/token_event.hpp"

#include <string>
#include <vector>

namespace attune {

/// A piece of a choice's message as the client sees it. Today only content; reasoning and tool calls come as new kinds.
struct MessageDelta {
    enum class Kind : std::uint8_t { content, reasoning } kind = Kind::content;
    std::string text;
};

/// Sits between token events and the codec, one per choice: turns tokens into message deltas.
class OutputParser {
public:
    virtual ~OutputParser() = default;
    virtual std::vector<MessageDelta> token(const TokenEvent& event) = 0;
    /// The choice ended; `tail` is text that was held back.
    virtual std::vector<MessageDelta> finish(std::string_view tail) = 0;
};

/// Every text is content.
class PlainOutputParser final : public OutputParser {
public:
    std::vector<MessageDelta> token(const TokenEvent& event) override { return piece(event.text); }
    std::vector<MessageDelta> finish(std::string_view tail) override { return piece(tail); }

private:
    static std::vector<MessageDelta> piece(std::string_view text) {
        if (text.empty()) return {};
        return {MessageDelta{MessageDelta::Kind::content, std::string(text)}};
    }
};

}  // namespace attune
