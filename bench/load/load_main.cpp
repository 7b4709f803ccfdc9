#include "bench/load/options.hpp"
#include "bench/load/report.hpp"
#include "bench/load/stream_client.hpp"
#include "bench/load/workload.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <deque>
#include <iostream>
#include <memory>

namespace attune::load {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// The base's id is the first card of /v1/models.
std::string first_model(const Options& options) {
    asio::io_context io;
    boost::beast::tcp_stream stream(io);
    stream.connect(asio::ip::tcp::resolver(io).resolve(options.host, options.port));
    http::request<http::empty_body> request{http::verb::get, "/v1/models", 11};
    request.set(http::field::host, options.host + ":" + options.port);
    http::write(stream, request);
    boost::beast::flat_buffer buffer;
    http::response<http::string_body> response;
    http::read(stream, buffer, response);
    const auto cards = boost::json::parse(response.body()).at("data").as_array();
    return std::string(cards.at(0).at("id").as_string());
}

/// Everything the coroutines share; one thread runs them all.
struct Run {
    Options options;
    std::vector<Planned> planned;
    std::size_t next = 0;
    std::vector<Outcome> outcomes;
    std::deque<std::unique_ptr<StreamClient>> idle;  ///< kept-alive connections of the open loop

    asio::awaitable<void> closed_loop() {
        StreamClient client(co_await asio::this_coro::executor, options.host, options.port);
        while (next < planned.size()) {
            const auto& mine = planned[next++];
            outcomes.push_back(co_await client.run(mine.model, mine.body, options.timeout_s));
        }
    }

    asio::awaitable<void> one(const Planned& mine) {
        auto executor = co_await asio::this_coro::executor;
        if (idle.empty()) idle.push_back(std::make_unique<StreamClient>(executor, options.host, options.port));
        auto client = std::move(idle.front());
        idle.pop_front();
        outcomes.push_back(co_await client->run(mine.model, mine.body, options.timeout_s));
        idle.push_back(std::move(client));
    }

    asio::awaitable<void> open_loop() {
        auto executor = co_await asio::this_coro::executor;
        const auto start = Clock::now();
        asio::steady_timer timer(executor);
        for (const auto& mine : planned) {
            timer.expires_at(start +
                             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(mine.start_s)));
            co_await timer.async_wait(asio::use_awaitable);
            asio::co_spawn(executor, one(mine), asio::detached);
        }
    }
};

}  // namespace

int run(int argc, char** argv) {
    Run run{.options = parse_options(argc, argv), .planned = {}, .outcomes = {}, .idle = {}};
    if (run.options.model.empty()) run.options.model = first_model(run.options);
    run.planned = plan(run.options);
    asio::io_context io(1);
    if (run.options.rate > 0) {
        asio::co_spawn(io, run.open_loop(), asio::detached);
    } else {
        for (int i = 0; i < run.options.streams; ++i) asio::co_spawn(io, run.closed_loop(), asio::detached);
    }
    io.run();
    std::cout << report(run.options, run.outcomes) << "\n";
    for (const auto& outcome : run.outcomes)
        if (!outcome.error.empty()) return 1;
    return 0;
}

}  // namespace attune::load

int main(int argc, char** argv) {
    try {
        return attune::load::run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "attune_load: " << error.what() << "\n";
        return 1;
    }
}
