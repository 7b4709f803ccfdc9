#pragma once

#include "net/api_request.hpp"
#include "net/generation.hpp"
#include "net/http_message.hpp"
#include "net/json_text.hpp"
#include "net/server_state.hpp"
#include "net/strand.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json/object.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// One HTTP/1.1 connection: requests are read and answered in order on the connection's strand. While a generation is
/// under way a second coroutine reads beside it, so that a client that leaves cancels its work in every state.
///
/// Coroutines here take references to named locals of their callers: g++ 12 moves a temporary string in the arguments
/// of a co_await by copying its bytes, which breaks short ones.
class HttpSession final : public Connection, public std::enable_shared_from_this<HttpSession> {
public:
    using tcp = asio::ip::tcp;
    using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

    HttpSession(ServerState& server, tcp::socket socket);

    /// Serves the connection to its end. `self` keeps the session alive for as long.
    asio::awaitable<void> run(std::shared_ptr<HttpSession> self);
    /// Says that there is no room for the connection, and ends it.
    asio::awaitable<void> refuse(std::shared_ptr<HttpSession> self);

    void drain() override;
    void close() override;

private:
    // http_session.cpp: reading and writing. Those that return bool say whether the connection goes on.
    asio::awaitable<bool> serve_one();
    asio::awaitable<bool> wait_for_first_byte();
    asio::awaitable<bool> answer_bad_head(boost::system::error_code failure);
    asio::awaitable<bool> read_body(Parser& parser, RequestContext& context);
    asio::awaitable<bool> upgrade(Parser& parser, RequestContext& context);
    asio::awaitable<bool> answer(const RequestContext& context, const Response& response);
    asio::awaitable<bool> write(const std::string& text);
    asio::awaitable<void> linger();
    asio::awaitable<void> watch(std::shared_ptr<HttpSession> self);
    /// The client's leaving is seen until stop_watch(); a generation that is under way goes with it.
    void start_watch(Generation* generation);
    asio::awaitable<void> stop_watch();
    void vanish();
    void cut_off();
    bool is_gone() const { return is_closed_ || is_vanished_; }

    // http_handlers.cpp: what each route does.
    asio::awaitable<bool> dispatch(RequestContext& context, std::string& body);
    asio::awaitable<Response> handle(RequestContext& context, std::string& body);
    asio::awaitable<Response> list_models(RequestContext& context);
    asio::awaitable<Response> load_adapter(RequestContext& context, std::string& body);
    asio::awaitable<Response> unload_adapter(RequestContext& context, std::string& body);
    asio::awaitable<Response> order_module(RequestContext& context, std::string& body);
    asio::awaitable<Response> metrics();
    asio::awaitable<Response> audit(bool run);
    asio::awaitable<Response> routing(RequestContext& context);
    asio::awaitable<Response> put_routing(RequestContext& context, std::string& body);
    asio::awaitable<Response> try_routing(RequestContext& context, std::string& body);
    asio::awaitable<Response> tokenize(RequestContext& context, std::string& body);
    asio::awaitable<Response> detokenize(RequestContext& context, std::string& body);
    Response readiness() const;
    DecodeContext decode_context() const { return {server_.gateway.info(), server_.limits, false}; }

    // http_generate.cpp: completions and chat.
    asio::awaitable<bool> generate(RequestContext& context, std::string& body);
    asio::awaitable<bool> answer_at_once(RequestContext& context, ApiRequest& request);
    asio::awaitable<bool> answer_streamed(RequestContext& context, ApiRequest& request);

    /// What a body's JSON object means.
    template <class T>
    using Decode = std::function<Result<T>(const boost::json::object&)>;

    /// Parses and decodes a body, a large one away from the IO threads, and lets go of its text. An optional one may be
    /// empty. When the client leaves meanwhile, the result is an error and is_gone().
    template <class T>
    asio::awaitable<Result<T>> read_as(std::string& body, bool is_optional, const Decode<T>& decode);
    /// Calls `read`, on another thread for a large body; false when too much waits there.
    asio::awaitable<bool> read_aside(std::size_t bytes, const std::function<void()>& read);

    /// A call of the Gateway that takes a reply.
    template <class T>
    using Ask = std::function<void(Reply<T>)>;

    /// Asks the house and waits for its reply, or for the end of the connection.
    template <class T>
    asio::awaitable<Result<T>> ask(const Ask<T>& call);

    ServerState& server_;
    tcp::socket socket_;
    Strand strand_;
    boost::beast::flat_buffer buffer_;
    Signal signal_;
    Deadline deadline_;
    Generation* generation_ = nullptr;  ///< what leaves with the client
    bool is_busy_ = false;              ///< between start_watch() and stop_watch()
    bool is_idle_ = false;              ///< between two requests
    bool is_draining_ = false;
    bool is_closed_ = false;
    bool is_vanished_ = false;  ///< the client left, or was cut off
    bool is_watching_ = false;
    std::atomic<bool> has_left_ = false;  ///< is_gone(), for the threads that read bodies
};

template <class T>
asio::awaitable<Result<T>> HttpSession::ask(const Ask<T>& call) {
    struct Pending {
        std::mutex mutex;
        std::optional<Result<T>> result;
    };
    const auto pending = std::make_shared<Pending>();
    const auto bell = std::make_shared<Bell>(strand_, [this] { signal_.notify(); });
    call([pending, bell](Result<T> result) {
        {
            const std::lock_guard lock(pending->mutex);
            pending->result = std::move(result);
        }
        bell->ring();
    });
    std::optional<Result<T>> answer;
    while (!answer && !is_closed_) {
        {
            const std::lock_guard lock(pending->mutex);
            answer = std::move(pending->result);
        }
        if (!answer) co_await signal_.wait();
    }
    bell->close();
    if (!answer) answer = make_error(Errc::unavailable, "The server is shutting down.");
    co_return std::move(*answer);
}

template <class T>
asio::awaitable<Result<T>> HttpSession::read_as(std::string& body, bool is_optional, const Decode<T>& decode) {
    Result<T> result = make_error(Errc::unavailable, "The request was not read.");
    const std::size_t bytes = body.size();
    const std::function<void()> read = [&] {
        const std::string text = std::move(body);
        body.clear();
        if (has_left_) return;
        const auto object = parse_json_object(text, server_.limits.json_depth, is_optional);
        result = object ? decode(*object) : Result<T>(object.error());
    };
    const bool is_admitted = co_await read_aside(bytes, read);
    if (!is_admitted)
        result = make_error(Errc::overloaded, "Too many large bodies are being read (server.reading_bytes).");
    co_return std::move(result);
}

}  // namespace attune
