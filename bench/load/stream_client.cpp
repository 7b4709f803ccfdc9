#include "bench/load/stream_client.hpp"

#include "bench/load/sse_reader.hpp"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <utility>

namespace attune::load {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;

namespace {

int integer_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value && value->is_int64() ? static_cast<int>(value->as_int64()) : 0;
}

void read_served(const json::object& attune, Outcome& outcome) {
    const auto* served = attune.if_contains("served");
    if (!served || !served->is_array()) return;
    for (const auto& entry : served->as_array()) {
        const auto& object = entry.as_object();
        const auto* modules = object.if_contains("modules");
        if (modules && modules->is_array() && modules->as_array().empty())
            outcome.base_tokens += integer_at(object, "tokens");
    }
}

// One event's data. False once the stream is over.
bool read_event(const std::string& data, Outcome& outcome) {
    if (data == "[DONE]") return false;
    const auto now = Clock::now();
    const auto object = json::parse(data).as_object();
    if (const auto* error = object.if_contains("error")) {
        outcome.error = json::serialize(*error);
        return true;
    }
    if (const auto* choices = object.if_contains("choices"); choices && !choices->as_array().empty())
        outcome.chunks.push_back(now);
    if (const auto* usage = object.if_contains("usage"); usage && usage->is_object()) {
        outcome.prompt_tokens = integer_at(usage->as_object(), "prompt_tokens");
        outcome.completion_tokens = integer_at(usage->as_object(), "completion_tokens");
    }
    if (const auto* attune = object.if_contains("attune"); attune && attune->is_object())
        read_served(attune->as_object(), outcome);
    return true;
}

}  // namespace

StreamClient::StreamClient(asio::any_io_executor executor, std::string host, std::string port)
    : stream_(std::move(executor)), host_(std::move(host)), port_(std::move(port)) {}

asio::awaitable<void> StreamClient::connect() {
    asio::ip::tcp::resolver resolver(stream_.get_executor());
    const auto found = co_await resolver.async_resolve(host_, port_, asio::use_awaitable);
    co_await stream_.async_connect(found, asio::use_awaitable);
    stream_.socket().set_option(asio::ip::tcp::no_delay(true));
    connected_ = true;
}

asio::awaitable<void> StreamClient::exchange(const std::string& body, Outcome& outcome) {
    http::request<http::string_body> request{http::verb::post, "/v1/completions", 11};
    request.set(http::field::host, host_ + ":" + port_);
    request.set(http::field::content_type, "application/json");
    request.keep_alive(true);
    request.body() = body;
    request.prepare_payload();
    co_await http::async_write(stream_, request, asio::use_awaitable);

    boost::beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    co_await http::async_read_header(stream_, buffer, parser, asio::use_awaitable);
    outcome.cold = std::string(parser.get()["attune-cold"]);
    const bool ok = parser.get().result() == http::status::ok;

    SseReader events;
    std::string refused;
    bool finished = false;
    std::array<char, 16384> bytes;
    while (!parser.is_done()) {
        auto& target = parser.get().body();
        target.data = bytes.data();
        target.size = bytes.size();
        auto [failed, count] =
            co_await http::async_read_some(stream_, buffer, parser, asio::as_tuple(asio::use_awaitable));
        if (failed && failed != http::error::need_buffer) throw boost::system::system_error(failed);
        const std::string_view got(bytes.data(), bytes.size() - target.size);
        if (!ok) refused += got;
        if (!ok) continue;
        for (const auto& event : events.feed(got)) finished |= !read_event(event, outcome);
    }
    if (!ok) outcome.error = std::to_string(parser.get().result_int()) + " " + refused;
    if (ok && !finished && outcome.error.empty()) outcome.error = "the stream ended without [DONE]";
    if (!parser.keep_alive()) {
        stream_.close();
        connected_ = false;
    }
}

asio::awaitable<Outcome> StreamClient::run(std::string model, std::string body, double timeout_s) {
    Outcome outcome;
    outcome.model = std::move(model);
    outcome.start = Clock::now();
    try {
        stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000)));
        const bool kept_alive = connected_;
        if (!connected_) co_await connect();
        bool closed_meanwhile = false;
        try {
            co_await exchange(body, outcome);
        } catch (const boost::system::system_error& error) {
            // Some servers close a kept connection without a word; the next request finds out.
            closed_meanwhile = kept_alive && error.code() == http::error::end_of_stream && outcome.chunks.empty();
            if (!closed_meanwhile) throw;
        }
        if (closed_meanwhile) {
            stream_.close();
            co_await connect();
            co_await exchange(body, outcome);
        }
    } catch (const std::exception& error) {
        outcome.error = error.what();
        stream_.close();
        connected_ = false;
    }
    outcome.end = Clock::now();
    co_return outcome;
}

}  // namespace attune::load
