#pragma once

#include "support/http_client.hpp"

#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// A WebSocket client that is plain enough to misbehave: frames are written and read as bytes.
class WsClient {
public:
    enum Opcode : std::uint8_t { continuation = 0, text = 1, binary = 2, closing = 8, ping = 9, pong = 10 };
    struct Frame {
        std::uint8_t opcode = 0;
        std::string payload;
        bool is_last = true;  ///< of its message
        /// Of a close frame.
        int close_code() const;
    };

    /// Upgrades; `protocol` empty: none is offered.
    explicit WsClient(std::uint16_t port, const std::string& protocol = "attune.v1", int receive_bytes = 0);

    const HttpClient::Reply& handshake() const { return handshake_; }
    void send(std::string_view message, Opcode opcode = text);
    /// The header of a frame of that size, without its payload.
    void send_frame_head(Opcode opcode, std::uint64_t size);
    Frame read_frame();
    /// The next text message; other frames before it are dropped.
    boost::json::value read_message();
    HttpClient& socket() { return http_; }

private:
    HttpClient http_;
    HttpClient::Reply handshake_;
};

}  // namespace attune
