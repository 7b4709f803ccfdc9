#include "support/http_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace attune {
namespace {

constexpr long kPatienceSeconds = 20;

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

}  // namespace

const std::string& HttpClient::Reply::header(const std::string& name) const {
    static const std::string none;
    const auto found = headers.find(name);
    return found == headers.end() ? none : found->second;
}

HttpClient::HttpClient(std::uint16_t port, int receive_bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{kPatienceSeconds, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
}

void HttpClient::reset() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
}

bool HttpClient::try_send(std::string_view bytes) {
    while (!bytes.empty()) {
        const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

void HttpClient::send(std::string_view bytes) {
    if (!try_send(bytes)) throw std::runtime_error("send failed");
}

void HttpClient::send_request(std::string_view method, std::string_view path, std::string_view body,
                              const Headers& headers) {
    std::string text = std::string(method) + ' ' + std::string(path) + " HTTP/1.1\r\n";
    bool has_host = false;
    bool has_type = false;
    for (const auto& [name, value] : headers) {
        has_host = has_host || lower(name) == "host";
        has_type = has_type || lower(name) == "content-type";
        if (!value.empty()) text += name + ": " + value + "\r\n";  // an empty value leaves the header out
    }
    if (!has_host) text += "Host: localhost\r\n";
    if (!has_type && !body.empty()) text += "Content-Type: application/json\r\n";
    if (!body.empty() || method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    send(text + "\r\n" + std::string(body));
}

HttpClient::Reply HttpClient::request(std::string_view method, std::string_view path, std::string_view body,
                                      const Headers& headers) {
    send_request(method, path, body, headers);
    return read_reply(method == "HEAD");
}

HttpClient::Reply HttpClient::get(std::string_view path, const Headers& headers) {
    return request("GET", path, {}, headers);
}

HttpClient::Reply HttpClient::post(std::string_view path, std::string_view body, const Headers& headers) {
    return request("POST", path, body, headers);
}

bool HttpClient::fill() {
    std::array<char, 16384> bytes{};
    const auto read = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("the server does not answer");
    if (read <= 0) return false;
    buffer_.append(bytes.data(), static_cast<std::size_t>(read));
    return true;
}

std::string HttpClient::read_line() {
    std::size_t end = buffer_.find("\r\n");
    while (end == std::string::npos) {
        if (!fill()) throw std::runtime_error("the connection ended inside a line");
        end = buffer_.find("\r\n");
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
}

std::string HttpClient::read_bytes(std::size_t count) {
    while (buffer_.size() < count)
        if (!fill()) throw std::runtime_error("the connection ended inside a body");
    std::string bytes = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return bytes;
}

HttpClient::Reply HttpClient::read_head() {
    Reply reply;
    const std::string status = read_line();
    if (status.rfind("HTTP/1.1 ", 0) != 0) throw std::runtime_error("no status line: " + status);
    reply.status = std::stoi(status.substr(9, 3));
    for (std::string line = read_line(); !line.empty(); line = read_line()) {
        const std::size_t colon = line.find(':');
        reply.headers[lower(line.substr(0, colon))] = line.substr(line.find_first_not_of(' ', colon + 1));
    }
    events_.clear();
    body_ended_ = false;
    return reply;
}

HttpClient::Reply HttpClient::read_reply(bool is_head) {
    Reply reply = read_head();
    if (is_head || reply.status == 204 || reply.status == 100) return reply;
    if (reply.header("transfer-encoding") == "chunked") {
        for (std::string chunk = read_chunk(); !chunk.empty(); chunk = read_chunk()) reply.body += chunk;
        body_ended_ = true;
    } else if (reply.headers.contains("content-length")) {
        reply.body = read_bytes(std::stoul(reply.header("content-length")));
    }
    return reply;
}

std::string HttpClient::read_chunk() {
    const std::size_t size = std::stoul(read_line(), nullptr, 16);
    std::string chunk = read_bytes(size);
    read_line();
    return chunk;
}

std::string HttpClient::read_event(std::string_view name) {
    std::size_t end = events_.find("\n\n");
    while (end == std::string::npos && !body_ended_) {
        const std::string chunk = read_chunk();
        body_ended_ = chunk.empty();
        events_ += chunk;
        end = events_.find("\n\n");
    }
    if (end == std::string::npos) return {};
    const std::string event = events_.substr(0, end);
    events_.erase(0, end + 2);
    const std::string head = (name.empty() ? "" : "event: " + std::string(name) + '\n') + "data: ";
    if (event.rfind(head, 0) != 0) throw std::runtime_error("another event was expected: " + event);
    return event.substr(head.size());
}

bool HttpClient::is_closed_by_server() {
    while (fill()) {
    }
    return true;
}

}  // namespace attune
