#include "net/ws_client.hpp"

#include <boost/json/parse.hpp>
#include <stdexcept>

namespace attune {

int WsClient::Frame::close_code() const {
    if (payload.size() < 2) return 0;
    return static_cast<unsigned char>(payload[0]) * 256 + static_cast<unsigned char>(payload[1]);
}

WsClient::WsClient(std::uint16_t port, const std::string& protocol, int receive_bytes) : http_(port, receive_bytes) {
    http_.send_request("GET", "/v1/ws", "",
                       {{"Upgrade", "websocket"},
                        {"Connection", "Upgrade"},
                        {"Sec-WebSocket-Version", "13"},
                        {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="},
                        {"Sec-WebSocket-Protocol", protocol}});
    handshake_ = http_.read_head();
}

void WsClient::send_frame_head(Opcode opcode, std::uint64_t size) {
    std::string head{static_cast<char>(0x80 | opcode)};
    const int bytes = size < 126 ? 0 : size < 65536 ? 2 : 8;
    head += static_cast<char>(0x80 | (bytes == 0 ? size : bytes == 2 ? 126 : 127));
    for (int i = bytes - 1; i >= 0; --i) head += static_cast<char>(size >> (8 * i) & 255);
    http_.send(head + std::string(4, '\0'));  // a mask of zeros leaves the payload as it is
}

void WsClient::send(std::string_view message, Opcode opcode) {
    send_frame_head(opcode, message.size());
    http_.try_send(message);
}

WsClient::Frame WsClient::read_frame() {
    const std::string head = http_.read_bytes(2);
    Frame frame;
    frame.opcode = static_cast<std::uint8_t>(head[0] & 15);
    frame.is_last = (head[0] & 0x80) != 0;
    std::uint64_t size = head[1] & 127;
    if (size >= 126) {
        const std::string more = http_.read_bytes(size == 126 ? 2 : 8);
        size = 0;
        for (const char byte : more) size = size << 8 | static_cast<unsigned char>(byte);
    }
    frame.payload = http_.read_bytes(size);
    return frame;
}

boost::json::value WsClient::read_message() {
    std::string message;  // the server sends long ones in several frames
    for (;;) {
        const Frame frame = read_frame();
        if (frame.opcode == closing) throw std::runtime_error("closed: " + std::to_string(frame.close_code()));
        if (frame.opcode != text && frame.opcode != continuation) continue;
        message += frame.payload;
        if (frame.is_last) return boost::json::parse(message);
    }
}

}  // namespace attune
