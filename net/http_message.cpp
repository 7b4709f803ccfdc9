#include "net/http_message.hpp"

#include "net/errors.hpp"

#include <random>

namespace attune {

Response json_response(std::string body, int status) {
    Response response;
    response.status = status;
    response.body = std::move(body);
    return response;
}

Response text_response(std::string body) {
    Response response;
    response.content_type = "text/plain; charset=utf-8";
    response.body = std::move(body);
    return response;
}

Response error_response(const Error& error, std::string_view type) {
    Response response = json_response(error_body(error, type), http_status(error.code));
    if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (response.status == 429 || response.status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
}

Response status_response(int status, std::string_view message) {
    return json_response(R"({"error":)" + error_object(status, message) + '}', status);
}

std::string response_head(const RequestContext& context, int status, const HeaderList& headers, bool close) {
    std::string out = "HTTP/1.1 " + std::to_string(status) + ' ';
    out += reason_phrase(status);
    out += "\r\nServer: attune\r\n";
    const auto add = [&](std::string_view name, std::string_view value) {
        out.append(name).append(": ").append(value).append("\r\n");
    };
    if (!context.request_id.empty()) add("x-request-id", context.request_id);
    for (const auto& [name, value] : context.cors) add(name, value);
    for (const auto& [name, value] : headers) add(name, value);
    if (close)
        add("Connection", "close");
    else if (context.http_minor == 0)
        add("Connection", "keep-alive");
    return out += "\r\n";
}

std::string response_text(const RequestContext& context, const Response& response, bool close) {
    HeaderList headers = response.headers;
    const bool has_body = response.status != 204;
    if (has_body) {
        headers.emplace_back("Content-Type", response.content_type);
        headers.emplace_back("Content-Length", std::to_string(response.body.size()));
    }
    std::string out = response_head(context, response.status, headers, close);
    if (has_body && !context.is_head) out += response.body;
    return out;
}

std::string_view reason_phrase(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 202:
            return "Accepted";
        case 204:
            return "No Content";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 409:
            return "Conflict";
        case 413:
            return "Content Too Large";
        case 415:
            return "Unsupported Media Type";
        case 422:
            return "Unprocessable Content";
        case 426:
            return "Upgrade Required";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        default:
            return "Internal Server Error";
    }
}

std::string make_id(std::string_view prefix) {
    static thread_local std::mt19937_64 random{std::random_device{}()};
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string id(prefix);
    for (int word = 0; word < 2; ++word) {
        std::uint64_t bits = random();
        for (int digit = 0; digit < 16; ++digit, bits >>= 4) id += kHex[bits & 15];
    }
    return id;
}

}  // namespace attune
