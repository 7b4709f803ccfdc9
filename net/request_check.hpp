#pragma once

#include "net/http_message.hpp"
#include "net/server_state.hpp"

#include <optional>
#include <string_view>

namespace attune {

/// The parts of a request's head that decide whether it may come in.
struct RequestHead {
    std::string_view method;
    std::string_view target;
    std::optional<std::string_view> host;
    std::optional<std::string_view> origin;
    std::optional<std::string_view> content_type;
    std::string_view authorization;
    std::string_view request_id;
    std::string_view preflight_method;  ///< Access-Control-Request-Method
    bool has_body = false;
};

/// Checks Host, Origin, route, method, key, role and content type, in this order, before any byte of the body is read.
/// Fills `context`; returns the answer when the request is not to go on (refusals and CORS preflights).
std::optional<Response> check_request(const RequestHead& head, const ServerState& server, RequestContext& context);

}  // namespace attune
