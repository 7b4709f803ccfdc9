#include "net/server.hpp"

#include "attune/log.hpp"
#include "net/http_session.hpp"
#include "net/keys.hpp"
#include "net/origin.hpp"
#include "net/server_state.hpp"
#include "net/strand.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace attune {
namespace {

using tcp = asio::ip::tcp;
using boost::system::error_code;

// Refusals that may be under way beside the connections themselves.
constexpr std::size_t kRefusals = 64;
constexpr std::chrono::milliseconds kAcceptPause{50};

class HttpServer final : public Server {
public:
    HttpServer(const ServerSettings& settings, const LimitSettings& limits, Gateway& gateway, KeyRing keys)
        : state_(settings, limits, gateway, std::move(keys)),
          io_(settings.threads),
          work_(asio::make_work_guard(io_)),
          acceptor_(asio::make_strand(io_)) {}
    ~HttpServer() override { stop(); }

    error_code open(const tcp::endpoint& endpoint) {
        error_code failure;
        acceptor_.open(endpoint.protocol(), failure);
        if (!failure) acceptor_.set_option(asio::socket_base::reuse_address(true), failure);
        if (!failure) acceptor_.bind(endpoint, failure);
        if (!failure) acceptor_.listen(asio::socket_base::max_listen_connections, failure);
        if (!failure) port_ = acceptor_.local_endpoint(failure).port();
        return failure;
    }

    void start() {
        asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
        for (int i = 0; i < std::max(1, state_.settings.threads); ++i) threads_.emplace_back([this] { io_.run(); });
    }

    std::uint16_t port() const override { return port_; }

    std::size_t connections() const override { return state_.connections(); }

    void stop_accepting() override {
        close_acceptor();
        state_.drain_all();
    }

    void stop() override {
        close_acceptor();
        state_.close_all();
        work_.reset();
        // Every session ends on its own once its socket is closed: nothing of theirs is left when run() returns.
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    void close_acceptor() {
        asio::post(acceptor_.get_executor(), [this] {
            error_code ignored;
            acceptor_.close(ignored);
        });
    }

    asio::awaitable<void> accept() {
        asio::steady_timer pause(acceptor_.get_executor());
        while (acceptor_.is_open()) {
            tcp::socket socket(asio::make_strand(io_));
            const auto [failure] = co_await acceptor_.async_accept(socket, kAwait);
            if (!acceptor_.is_open()) break;
            if (failure) {
                // Out of descriptors, most likely: those who are there get time to leave.
                log(LogLevel::warn, "accept: " + failure.message());
                pause.expires_after(kAcceptPause);
                co_await pause.async_wait(kAwait);
                continue;
            }
            welcome(std::move(socket));
        }
    }

    void welcome(tcp::socket socket) {
        const std::size_t connections = state_.connections();
        const auto limit = static_cast<std::size_t>(state_.settings.max_connections);
        if (connections >= limit + kRefusals) return;
        error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        const auto executor = socket.get_executor();
        const auto session = std::make_shared<HttpSession>(state_, std::move(socket));
        state_.add(session);
        asio::co_spawn(executor, connections < limit ? session->run(session) : session->refuse(session),
                       asio::detached);
    }

    ServerState state_;
    asio::io_context io_;
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    tcp::acceptor acceptor_;
    std::vector<std::thread> threads_;
    std::uint16_t port_ = 0;
};

Result<tcp::endpoint> resolve(const ServerSettings& settings) {
    error_code failure;
    const auto address = asio::ip::make_address(settings.host, failure);
    if (!failure) return tcp::endpoint(address, settings.port);
    asio::io_context io;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(settings.host, std::to_string(settings.port), failure);
    if (failure || found.empty())
        return make_error(Errc::invalid_argument, "server.host: " + settings.host + " is no address of this machine.");
    return found.begin()->endpoint();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const ServerSettings& settings, const LimitSettings& limits,
                                               Gateway& gateway) {
    KeyRing keys;
    if (!settings.keys_file.empty()) {
        auto read = KeyRing::open(settings.keys_file);
        if (!read) return read.error();
        keys = std::move(*read);
    }
    const auto endpoint = resolve(settings);
    if (!endpoint) return endpoint.error();
    if (!keys.is_required() && !endpoint->address().is_loopback())
        return make_error(
            Errc::invalid_argument,
            "server.host: " + settings.host + " is reachable from other machines, which needs a server.keys_file.");
    auto server = std::make_unique<HttpServer>(settings, limits, gateway, std::move(keys));
    if (const auto failure = server->open(*endpoint))
        return make_error(Errc::invalid_argument, "Cannot listen on " + settings.host + ":" +
                                                      std::to_string(settings.port) + ": " + failure.message() + ".");
    server->start();
    return std::unique_ptr<Server>(std::move(server));
}

}  // namespace attune
