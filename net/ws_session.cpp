#include "net/ws_session.hpp"

#include "attune/log.hpp"
#include "net/errors.hpp"
#include "net/http_message.hpp"
#include "net/json_text.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/field.hpp>

#include <chrono>
#include <ctime>
#include <functional>

namespace attune {
namespace {

namespace websocket = boost::beast::websocket;
using boost::system::error_code;

constexpr std::string_view kProtocol = "attune.v1";

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// `{"type":"…","id":"…"`: what every message about a request begins with.
std::string message_head(std::string_view type, std::string_view id) {
    std::string out = R"({"type":")";
    out.append(type).append(R"(","id":)");
    append_json_string(out, id);
    return out;
}

}  // namespace

/// One request of the connection: turns its answer into messages.
class WsSession::Request final : public AnswerListener {
public:
    Request(WsSession& session, std::string id, const ApiRequest& request)
        : session_(session),
          id_(std::move(id)),
          chunk_head_(message_head("chunk", id_) + R"(,"data":)"),
          answer_(request, make_id(request.endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-"), std::time(nullptr),
                  *this),
          generation_(session.server_.gateway, session.strand_,
                      [this](std::size_t prompt, OutputEvent event) { answer_.take(prompt, std::move(event)); }) {}

    void start(std::vector<GenerationRequest> prompts) { generation_.start(std::move(prompts)); }
    void cancel() {
        is_cancelled_ = true;
        generation_.cancel();
    }
    bool is_over() const { return answer_.is_over(); }

    void on_admitted() override {
        std::string message = message_head("accepted", id_) + R"(,"cold":")";
        message += cold_word(answer_.record().cold());
        message += R"(","route":)";
        append_route(message, answer_.record().route());
        session_.send(message + '}');
    }
    void on_chunk(std::string_view chunk) override {
        std::string message;
        message.reserve(chunk_head_.size() + chunk.size() + 1);
        session_.send(std::move(message.append(chunk_head_).append(chunk).append("}")));
    }
    void on_switched(const Switched& event) override {
        std::string message = message_head("switch", id_) + R"(,"base_tokens":)";
        append_json_number(message, std::int64_t{event.base_tokens});
        message += R"(,"modules":)";
        append_applied_modules(message, event.modules);
        session_.send(message + '}');
    }
    void on_revised(const Revised& event, const std::vector<int>& choices) override {
        session_.send(message_head("revision", id_) + ',' + revision_fields(event, choices) + '}');
    }
    void on_finished() override {
        session_.send(message_head("done", id_) + R"(,"usage":)" + answer_.record().usage_json() + R"(,"attune":)" +
                      answer_.record().attune_json() + '}');
        session_.retire(id_, this);
    }
    void on_failed(const Error& error) override {
        // A request that its client cancelled has not failed: it ends with what was made until then.
        if (is_cancelled_ && error.code == Errc::cancelled) return on_finished();
        session_.send_error(id_, error);
        session_.retire(id_, this);
    }

private:
    WsSession& session_;
    const std::string id_;
    const std::string chunk_head_;
    StreamAnswer answer_;
    Generation generation_;
    bool is_cancelled_ = false;
};

WsSession::WsSession(ServerState& server, tcp::socket socket, Caller caller)
    : server_(server),
      socket_(std::move(socket)),
      strand_(socket_.get_executor()),
      caller_(std::move(caller)),
      signal_(strand_),
      writer_gone_(strand_) {}

WsSession::~WsSession() = default;

bool WsSession::offers_protocol(std::string_view list) {
    while (!list.empty()) {
        const std::size_t comma = list.find(',');
        std::string_view item = list.substr(0, comma);
        item.remove_prefix(std::min(item.find_first_not_of(" \t"), item.size()));
        item = item.substr(0, item.find_last_not_of(" \t") + 1);
        if (item == kProtocol) return true;
        list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    }
    return false;
}

void WsSession::drain() {
    asio::post(strand_, [self = shared_from_this()] {
        self->is_draining_ = true;
        self->signal_.notify();
    });
}

void WsSession::close() {
    asio::post(strand_, [self = shared_from_this()] { self->close_socket(); });
}

void WsSession::close_socket() {
    is_closed_ = true;
    error_code ignored;
    auto& socket = boost::beast::get_lowest_layer(socket_);
    socket.set_option(asio::socket_base::linger(true, 0), ignored);
    socket.close(ignored);
    signal_.notify();
}

asio::awaitable<void> WsSession::run(const UpgradeRequest& request, bool names_protocol) {
    const ServerSettings& settings = server_.settings;
    socket_.set_option(websocket::stream_base::timeout{milliseconds(settings.request_timeout_s),
                                                       milliseconds(settings.idle_timeout_s), true});
    socket_.set_option(websocket::stream_base::decorator([names_protocol](websocket::response_type& response) {
        response.set(boost::beast::http::field::server, "attune");
        if (names_protocol) response.set(boost::beast::http::field::sec_websocket_protocol, "attune.v1");
    }));
    socket_.read_message_max(settings.max_body_bytes);
    socket_.text(true);
    const auto [failure] = co_await socket_.async_accept(request, kAwait);
    if (failure) co_return;
    is_writing_ = true;
    asio::co_spawn(strand_, write_messages(shared_from_this()), asio::detached);
    co_await read_messages();
    is_closed_ = true;
    if (!user_.empty()) server_.gateway.leave(user_, caller_);
    requests_.clear();  // cancels what is left
    error_code ignored;
    boost::beast::get_lowest_layer(socket_).close(ignored);  // a write that is stuck ends now
    signal_.notify();
    while (is_writing_) co_await writer_gone_.wait();
}

asio::awaitable<void> WsSession::read_messages() {
    while (!is_closed_) {
        const auto [failure, bytes] = co_await socket_.async_read(buffer_, kAwait);
        if (failure) co_return;
        if (!socket_.got_text()) {
            co_await socket_.async_close(websocket::close_code::unknown_data, kAwait);
            co_return;
        }
        WsMessage message;
        const std::function<void()> read = [&] {
            const std::string_view text{static_cast<const char*>(buffer_.data().data()), buffer_.size()};
            message = decode_ws_message(text, {server_.gateway.info(), server_.limits, true});
        };
        const bool is_large = bytes > BodyReaders::kSmallBytes;
        bool is_admitted = true;
        if (is_large)
            is_admitted = co_await server_.body_readers.run(bytes, read);
        else
            read();
        if (is_closed_) co_return;
        if (!is_admitted)
            message.fault =
                make_error(Errc::overloaded, "Too many large bodies are being read (server.reading_bytes).");
        handle_message(std::move(message));
        buffer_.consume(buffer_.size());
        if (!is_large) continue;
        buffer_.shrink_to_fit();
        server_.body_readers.release_memory();
    }
}

asio::awaitable<void> WsSession::write_messages(std::shared_ptr<WsSession> self) {
    while (!is_closed_) {
        if (messages_.empty() && is_draining_ && requests_.empty()) {
            co_await socket_.async_close(websocket::close_code::going_away, kAwait);
            break;
        }
        if (messages_.empty()) {
            co_await signal_.wait();
            continue;
        }
        const std::string message = std::move(messages_.front());
        messages_.pop_front();
        waiting_bytes_ -= message.size();
        const auto [failure, bytes] = co_await socket_.async_write(asio::buffer(message), kAwait);
        if (failure) break;
    }
    is_writing_ = false;
    self->writer_gone_.notify();
}

void WsSession::send(std::string message) {
    if (is_closed_) return;
    // A slow reader is cut off: no close frame would get through to it. What waits behind the write in progress counts,
    // before this message: the log-probabilities of one long prompt may be beyond the bound.
    if (waiting_bytes_ > server_.settings.unsent_bytes) return close_socket();
    waiting_bytes_ += message.size();
    messages_.push_back(std::move(message));
    signal_.notify();
}

void WsSession::send_error(const std::string& id, const Error& error) {
    std::string message = R"({"type":"error","id":)";
    if (id.empty())
        message += "null";
    else
        append_json_string(message, id);
    send(message + R"(,"error":)" + error_object(error) + '}');
}

void WsSession::retire(const std::string& id, const Request* request) {
    asio::post(strand_, [self = shared_from_this(), id, request] {
        const auto found = self->requests_.find(id);
        if (found != self->requests_.end() && found->second.get() == request) self->requests_.erase(found);
        self->signal_.notify();
    });
}

void WsSession::handle_message(WsMessage message) {
    if (message.fault) return send_error(message.id, *message.fault);
    switch (message.kind) {
        case WsMessage::Kind::hello:
            return handle_hello(std::move(message.user));
        case WsMessage::Kind::cancel:
            // An id that is not in flight may have ended while the cancel was on its way.
            if (const auto found = requests_.find(message.id); found != requests_.end()) found->second->cancel();
            return;
        case WsMessage::Kind::request:
            return handle_request(message.id, *message.request);
    }
}

/// One user at a time: a second hello takes the first one's leave.
void WsSession::handle_hello(std::string user) {
    if (user == user_) return;
    if (!user_.empty()) server_.gateway.leave(user_, caller_);
    user_ = std::move(user);
    if (!user_.empty()) server_.gateway.greet(user_, caller_);
}

void WsSession::handle_request(const std::string& id, Result<ApiRequest>& request) {
    if (is_draining_) return send_error(id, make_error(Errc::unavailable, "The server is shutting down."));
    const auto earlier = requests_.find(id);
    if (earlier != requests_.end() && !earlier->second->is_over())
        return send_error(id, make_error(Errc::invalid_argument, "The id `" + id + "` is in flight.", "id"));
    if (requests_.size() >= static_cast<std::size_t>(server_.settings.ws_requests))
        return send_error(id, make_error(Errc::overloaded, "At most " + std::to_string(server_.settings.ws_requests) +
                                                               " requests may be in flight (server.ws_requests)."));
    if (!request) return send_error(id, request.error());
    const TimePoint received = steady_now();
    if (!request->unknown_fields.empty())
        log(LogLevel::warn, "WebSocket: unknown request fields are ignored: " + request->unknown_fields);
    for (auto& prompt : request->prompts) {
        prompt.caller = caller_;
        prompt.received = received;
        if (prompt.user.empty()) prompt.user = user_;
    }
    auto& slot = requests_[id];
    slot = std::make_unique<Request>(*this, id, *request);
    slot->start(std::move(request->prompts));
}

}  // namespace attune
