#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace attune::load {

using Clock = std::chrono::steady_clock;

/// What one streamed request looked like from outside.
struct Outcome {
    std::string model;
    std::string error;  ///< empty when the stream ended as it should
    Clock::time_point start{};
    std::vector<Clock::time_point> chunks;  ///< when each chunk with text or tokens arrived
    Clock::time_point end{};
    int prompt_tokens = 0;
    int completion_tokens = 0;  ///< by `usage`
    int base_tokens = 0;        ///< of those, made by the bare base, by `attune.served`
    std::string cold;           ///< the header `attune-cold`
};

/// A kept-alive connection that runs one streamed completion after another.
class StreamClient {
public:
    StreamClient(boost::asio::any_io_executor executor, std::string host, std::string port);

    /// Never throws for what a server or network does: `Outcome::error` says it.
    boost::asio::awaitable<Outcome> run(std::string model, std::string body, double timeout_s);

private:
    boost::asio::awaitable<void> connect();
    boost::asio::awaitable<void> exchange(const std::string& body, Outcome& outcome);

    boost::beast::tcp_stream stream_;
    std::string host_;
    std::string port_;
    bool connected_ = false;
};

}  // namespace attune::load
