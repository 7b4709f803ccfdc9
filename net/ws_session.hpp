#pragma once

#include "net/api_request.hpp"
#include "net/generation.hpp"
#include "net/server_state.hpp"
#include "net/strand.hpp"
#include "net/stream_answer.hpp"
#include "net/ws_message.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace attune {

/// One WebSocket of /v1/ws: many requests at once, each told by messages that carry its id. A reader takes messages, a
/// writer sends what the requests' events become; both on one strand.
class WsSession final : public Connection, public std::enable_shared_from_this<WsSession> {
public:
    using tcp = asio::ip::tcp;
    using UpgradeRequest = boost::beast::http::request<boost::beast::http::string_body>;

    WsSession(ServerState& server, tcp::socket socket, Caller caller);
    ~WsSession() override;

    /// Answers the upgrade and serves the connection to its end.
    asio::awaitable<void> run(const UpgradeRequest& request, bool names_protocol);
    static bool offers_protocol(std::string_view list);

    void drain() override;
    void close() override;

private:
    class Request;

    asio::awaitable<void> read_messages();
    asio::awaitable<void> write_messages(std::shared_ptr<WsSession> self);
    void handle_message(WsMessage message);
    void handle_hello(std::string user);
    void handle_request(const std::string& id, Result<ApiRequest>& request);
    void send(std::string message);
    void send_error(const std::string& id, const Error& error);
    /// Forgets a request once the handler that ended it has returned.
    void retire(const std::string& id, const Request* request);
    void close_socket();

    ServerState& server_;
    boost::beast::websocket::stream<tcp::socket> socket_;
    Strand strand_;
    Caller caller_;
    std::string user_;
    boost::beast::flat_buffer buffer_;
    Signal signal_;  ///< wakes the writer
    Signal writer_gone_;
    std::deque<std::string> messages_;
    std::size_t waiting_bytes_ = 0;  ///< of messages_; the one being written has left
    std::map<std::string, std::unique_ptr<Request>> requests_;
    bool is_draining_ = false;
    bool is_closed_ = false;
    bool is_writing_ = false;
};

}  // namespace attune
