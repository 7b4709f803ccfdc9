#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::load {

/// Cuts a text/event-stream into the data of its events, however the bytes arrive.
class SseReader {
public:
    /// The events that became complete with `bytes`; events without a data line give nothing.
    std::vector<std::string> feed(std::string_view bytes) {
        pending_ += bytes;
        std::vector<std::string> events;
        for (auto end = pending_.find("\n\n"); end != std::string::npos; end = pending_.find("\n\n")) {
            std::string_view event(pending_.data(), end);
            constexpr std::string_view kData = "data: ";
            if (const auto at = event.find(kData); at == 0 || (at != event.npos && event[at - 1] == '\n'))
                events.emplace_back(event.substr(at + kData.size()));
            pending_.erase(0, end + 2);
        }
        return events;
    }

private:
    std::string pending_;
};

}  // namespace attune::load
