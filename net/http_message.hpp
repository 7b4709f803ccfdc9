#pragma once

#include "attune/error.hpp"
#include "attune/request.hpp"
#include "net/routes.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

/// A whole answer. The session adds what every answer carries: length, connection, request id and CORS headers.
struct Response {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    HeaderList headers;
    bool must_close = false;
};

/// What the session knows of a request once its head is read and allowed.
struct RequestContext {
    RouteMatch route;
    Caller caller;
    std::string request_id;
    HeaderList cors;  ///< headers for an allowed foreign origin
    int http_minor = 1;
    bool keep_alive = true;
    bool is_head = false;
};

Response json_response(std::string body, int status = 200);
Response text_response(std::string body);
/// An error in vLLM's shape, with Retry-After and WWW-Authenticate where its status wants them.
Response error_response(const Error& error, std::string_view type = {});
/// The same for a status that no Errc has.
Response status_response(int status, std::string_view message);

/// Status line and headers, up to and with the empty line.
std::string response_head(const RequestContext& context, int status, const HeaderList& headers, bool close);
/// Head and body.
std::string response_text(const RequestContext& context, const Response& response, bool close);

std::string_view reason_phrase(int status);
/// `prefix` and 32 random hex digits.
std::string make_id(std::string_view prefix);

}  // namespace attune
