#include "net/http_session.hpp"

#include "net/request_check.hpp"
#include "net/ws_session.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

#include <algorithm>
#include <array>

namespace attune {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 16 << 10;
constexpr double kMaxRequestSeconds = 60;
constexpr double kLingerSeconds = 2;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The client's fault, not the end of its connection.
bool is_malformed(const error_code& failure) {
    return failure.category() == make_error_code(http::error::bad_method).category() &&
           failure != http::error::end_of_stream && failure != http::error::partial_message;
}

template <class Request>
RequestHead head_of(const Request& request, bool has_body) {
    const auto optional = [&](http::field name) -> std::optional<std::string_view> {
        const auto field = request.find(name);
        if (field == request.end()) return std::nullopt;
        return view(field->value());
    };
    RequestHead head;
    head.method = view(request.method_string());
    head.target = view(request.target());
    head.host = optional(http::field::host);
    head.origin = optional(http::field::origin);
    head.content_type = optional(http::field::content_type);
    head.authorization = optional(http::field::authorization).value_or("");
    head.preflight_method = optional(http::field::access_control_request_method).value_or("");
    head.request_id = view(request["x-request-id"]);
    head.has_body = has_body;
    return head;
}

// What this server and one that stands before it might read differently.
template <class Request>
std::optional<Error> fault_of_framing(const Request& request, int http_minor) {
    const std::size_t hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && http_minor == 1))
        return make_error(Errc::invalid_argument, "There must be one Host header.");
    // A coding that Beast does not know leaves the body's bytes to be read as the next request.
    const auto coding = request[http::field::transfer_encoding];
    const std::size_t codings = request.count(http::field::transfer_encoding);
    if (codings > 1 || (codings == 1 && !boost::beast::iequals(coding, "chunked")))
        return make_error(Errc::unsupported, "Only the Transfer-Encoding `chunked` is offered.");
    return std::nullopt;
}

}  // namespace

HttpSession::HttpSession(ServerState& server, tcp::socket socket)
    : server_(server),
      socket_(std::move(socket)),
      strand_(socket_.get_executor()),
      buffer_(server.settings.max_header_bytes + server.settings.max_body_bytes + 4 * kReadBytes),
      signal_(strand_),
      deadline_(strand_, [this] {
          error_code ignored;
          socket_.close(ignored);
      }) {}

void HttpSession::drain() {
    asio::post(strand_, [self = shared_from_this()] {
        self->is_draining_ = true;
        error_code ignored;
        if (self->is_idle_) self->socket_.close(ignored);
    });
}

void HttpSession::close() {
    asio::post(strand_, [self = shared_from_this()] {
        self->is_closed_ = true;
        self->has_left_ = true;
        self->deadline_.disarm();
        error_code ignored;
        self->socket_.close(ignored);
        self->signal_.notify();
    });
}

asio::awaitable<void> HttpSession::run(std::shared_ptr<HttpSession> self) {
    bool goes_on = true;
    while (goes_on && !is_gone()) goes_on = co_await serve_one();
    deadline_.disarm();
    error_code ignored;
    socket_.close(ignored);
    server_.remove(self.get());
}

asio::awaitable<void> HttpSession::refuse(std::shared_ptr<HttpSession> self) {
    RequestContext context;
    context.request_id = make_id("req-");
    Response response = error_response(make_error(Errc::unavailable, "Too many connections (server.max_connections)."));
    response.must_close = true;
    co_await answer(context, response);
    error_code ignored;
    socket_.close(ignored);
    server_.remove(self.get());
}

asio::awaitable<bool> HttpSession::serve_one() {
    const bool has_arrived = co_await wait_for_first_byte();
    if (!has_arrived) co_return false;
    // One time for the whole request: slow bytes do not prolong it.
    deadline_.arm(std::min(server_.settings.request_timeout_s, kMaxRequestSeconds));
    const auto parser = std::make_unique<Parser>();
    parser->header_limit(server_.settings.max_header_bytes);
    parser->body_limit(server_.settings.max_body_bytes);
    const auto [failure, bytes] = co_await http::async_read_header(socket_, buffer_, *parser, kAwait);
    if (failure) co_return co_await answer_bad_head(failure);

    RequestContext context;
    context.http_minor = parser->get().version() >= 11 ? 1 : 0;
    context.keep_alive = parser->keep_alive();
    const bool has_body = !parser->is_done();
    const RequestHead head = head_of(parser->get(), has_body);
    std::optional<Response> refusal = check_request(head, server_, context);
    const std::optional<Error> unclear = fault_of_framing(parser->get(), context.http_minor);
    if (!refusal && unclear) refusal = error_response(*unclear);
    if (refusal) {
        refusal->must_close = has_body || unclear;  // its body is not read
        co_return co_await answer(context, *refusal);
    }
    if (context.route.id == RouteId::websocket) co_return co_await upgrade(*parser, context);
    const bool is_read = co_await read_body(*parser, context);
    if (!is_read) co_return false;
    deadline_.disarm();
    std::string body = std::move(parser->get().body());
    const bool is_large = body.size() > BodyReaders::kSmallBytes;
    const bool goes_on = co_await dispatch(context, body);
    if (is_large) server_.body_readers.release_memory();
    co_return goes_on;
}

asio::awaitable<bool> HttpSession::wait_for_first_byte() {
    if (buffer_.size() > 0) co_return !is_draining_;
    if (is_draining_ || is_closed_) co_return false;
    is_idle_ = true;
    deadline_.arm(server_.settings.idle_timeout_s);
    const auto [failure, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    is_idle_ = false;
    if (failure) co_return false;
    buffer_.commit(bytes);
    co_return true;
}

asio::awaitable<bool> HttpSession::answer_bad_head(error_code failure) {
    RequestContext context;
    context.request_id = make_id("req-");
    Response response;
    if (failure == http::error::header_limit || failure == http::error::buffer_overflow)
        response = status_response(431, "The request's head is larger than server.max_header_bytes.");
    else if (failure == http::error::body_limit)
        response =
            error_response(make_error(Errc::payload_too_large, "The body is larger than server.max_body_bytes."));
    else if (is_malformed(failure))
        response = error_response(
            make_error(Errc::invalid_argument, "The request is not valid HTTP/1.1: " + failure.message() + "."));
    else
        co_return false;
    response.must_close = true;
    co_return co_await answer(context, response);
}

asio::awaitable<bool> HttpSession::read_body(Parser& parser, RequestContext& context) {
    if (parser.is_done()) co_return true;
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const bool is_written = co_await write(go_on);
        if (!is_written) co_return false;
        deadline_.arm(std::min(server_.settings.request_timeout_s, kMaxRequestSeconds));
    }
    const auto [failure, bytes] = co_await http::async_read(socket_, buffer_, parser, kAwait);
    if (!failure) co_return true;
    if (failure == http::error::body_limit || failure == http::error::buffer_overflow) {
        Response response =
            error_response(make_error(Errc::payload_too_large, "The body is larger than server.max_body_bytes."));
        response.must_close = true;
        co_await answer(context, response);
    } else if (is_malformed(failure)) {
        Response response = error_response(
            make_error(Errc::invalid_argument, "The body is not valid HTTP/1.1: " + failure.message() + "."));
        response.must_close = true;
        co_await answer(context, response);
    }
    co_return false;
}

asio::awaitable<bool> HttpSession::upgrade(Parser& parser, RequestContext& context) {
    namespace websocket = boost::beast::websocket;
    const auto& request = parser.get();
    if (!websocket::is_upgrade(request)) {
        Response response = status_response(426, "This route speaks WebSocket, subprotocol attune.v1.");
        response.headers = {{"Upgrade", "websocket"}};
        response.must_close = !parser.is_done();
        co_return co_await answer(context, response);
    }
    const auto offered = view(request[http::field::sec_websocket_protocol]);
    if (!offered.empty() && !WsSession::offers_protocol(offered)) {
        Response response =
            error_response(make_error(Errc::invalid_argument, "Of the offered subprotocols none is attune.v1."));
        response.must_close = true;
        co_return co_await answer(context, response);
    }
    deadline_.disarm();
    const auto session = std::make_shared<WsSession>(server_, std::move(socket_), context.caller);
    server_.remove(this);  // one connection, counted once
    server_.add(session);
    co_await session->run(request, !offered.empty());
    server_.remove(session.get());
    co_return false;
}

asio::awaitable<bool> HttpSession::answer(const RequestContext& context, const Response& response) {
    const bool must_close = response.must_close || !context.keep_alive || is_draining_;
    const std::string text = response_text(context, response, must_close);
    const bool is_written = co_await write(text);
    // What the client still sends would reset the connection before it has read the answer.
    if (is_written && response.must_close) co_await linger();
    co_return is_written && !must_close;
}

asio::awaitable<bool> HttpSession::write(const std::string& text) {
    deadline_.arm(server_.settings.idle_timeout_s);
    const auto [failure, bytes] = co_await asio::async_write(socket_, asio::buffer(text), kAwait);
    deadline_.disarm();
    co_return !failure && !is_gone();
}

asio::awaitable<void> HttpSession::linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    deadline_.arm(kLingerSeconds);
    std::array<char, kReadBytes> sink;
    bool is_open = true;
    while (is_open && !is_closed_) {
        const auto [failure, bytes] = co_await socket_.async_read_some(asio::buffer(sink), kAwait);
        is_open = !failure;
    }
    deadline_.disarm();
}

asio::awaitable<bool> HttpSession::read_aside(std::size_t bytes, const std::function<void()>& read) {
    if (bytes <= BodyReaders::kSmallBytes) {
        read();
        co_return true;
    }
    start_watch(nullptr);
    const bool is_admitted = co_await server_.body_readers.run(bytes, read);
    co_await stop_watch();
    co_return is_admitted;
}

void HttpSession::start_watch(Generation* generation) {
    generation_ = generation;
    is_busy_ = true;
    is_watching_ = true;
    asio::co_spawn(strand_, watch(shared_from_this()), asio::detached);
}

asio::awaitable<void> HttpSession::watch(std::shared_ptr<HttpSession> self) {
    // Pipelined requests are kept for later; more of them than one full request may hold is no client of ours.
    while (is_busy_ && buffer_.size() + kReadBytes <= buffer_.max_size()) {
        const auto [failure, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
        if (!failure) {
            buffer_.commit(bytes);
            continue;
        }
        // The end of the client's half counts as its leaving: HTTP clients do not close one half only.
        if (is_busy_) vanish();
        break;
    }
    if (is_busy_ && !is_vanished_) vanish();
    is_watching_ = false;
    self->signal_.notify();
}

asio::awaitable<void> HttpSession::stop_watch() {
    generation_ = nullptr;
    is_busy_ = false;
    error_code ignored;
    socket_.cancel(ignored);
    while (is_watching_) co_await signal_.wait();
}

void HttpSession::vanish() {
    is_vanished_ = true;
    has_left_ = true;
    if (generation_ != nullptr) generation_->cancel();
    signal_.notify();
}

void HttpSession::cut_off() {
    error_code ignored;
    // A reset: the kernel would otherwise go on keeping what this client does not read.
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
    vanish();
}

}  // namespace attune
