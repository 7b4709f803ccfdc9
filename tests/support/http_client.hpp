#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// A blocking socket to 127.0.0.1 that speaks as much HTTP/1.1 as tests need and lets them misbehave. Reads give up
/// with an exception after a bound that no sound run comes near.
class HttpClient {
public:
    struct Reply {
        int status = 0;
        std::map<std::string, std::string> headers;  ///< names in lower case
        std::string body;

        const std::string& header(const std::string& name) const;
    };
    using Headers = std::vector<std::pair<std::string, std::string>>;

    /// `receive_bytes` bounds the kernel's receive buffer, for readers that are to be slow; 0: the default.
    explicit HttpClient(std::uint16_t port, int receive_bytes = 0);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    Reply get(std::string_view path, const Headers& headers = {});
    Reply post(std::string_view path, std::string_view body, const Headers& headers = {});
    Reply request(std::string_view method, std::string_view path, std::string_view body, const Headers& headers);

    void send(std::string_view bytes);
    /// False when the connection was closed before all was sent.
    bool try_send(std::string_view bytes);
    /// Sends a whole request and does not wait.
    void send_request(std::string_view method, std::string_view path, std::string_view body,
                      const Headers& headers = {});
    Reply read_reply(bool is_head = false);
    /// Status line and headers; the body is left.
    Reply read_head();
    /// The data of the next server-sent event; empty at the end of the body. One that has a name must be expected.
    std::string read_event(std::string_view name = {});
    /// Exactly that many bytes.
    std::string read_bytes(std::size_t count);
    /// Whether the server has closed: reads and drops what still comes.
    bool is_closed_by_server();
    /// Closes this side.
    void close();
    /// Closes with a reset.
    void reset();

private:
    bool fill();  ///< reads some more; false at the end
    std::string read_line();
    std::string read_chunk();

    int socket_ = -1;
    std::string buffer_;
    std::string events_;  ///< body bytes of an event stream
    bool body_ended_ = false;
};

}  // namespace attune
