#include "net/request_check.hpp"

#include "net/json_text.hpp"
#include "net/origin.hpp"

#include <algorithm>

namespace attune {
namespace {

constexpr std::size_t kRequestIdBytes = 128;

std::string request_id(std::string_view given) {
    const bool is_plain = std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c < 127; });
    return !given.empty() && given.size() <= kRequestIdBytes && is_plain ? std::string(given) : make_id("req-");
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return out;
}

bool is_json(std::string_view content_type) {
    std::string type = lower(content_type.substr(0, content_type.find(';')));
    type.erase(type.find_last_not_of(" \t") + 1);
    return type == "application/json";
}

std::optional<Response> check_host_and_origin(const RequestHead& head, const ServerState& server, Access access,
                                              RequestContext& context) {
    const bool is_foreign = head.origin && !is_own_origin(*head.origin, head.host.value_or(""));
    const bool is_listed = head.origin && is_cors_origin(*head.origin, server.settings);
    if (is_listed)
        context.cors = {{"Access-Control-Allow-Origin", std::string(*head.origin)},
                        {"Access-Control-Expose-Headers", "attune-served, attune-cold, x-request-id"},
                        {"Vary", "Origin"}};
    if (access == Access::open) return std::nullopt;
    if (!server.keys.is_required() && head.host && !is_host_allowed(*head.host, server.settings))
        return error_response(make_error(Errc::forbidden, "This Host is not served here (server.hosts)."));
    if (is_foreign && !is_listed)
        return error_response(make_error(Errc::forbidden, "This Origin is not allowed (server.cors_origins)."));
    return std::nullopt;
}

Response preflight(std::string_view allow) {
    Response response;
    response.status = 204;
    // Any header for a page that may call at all: the official client brings some of its own (x-stainless-os, ...). The
    // star does not speak for authorization.
    response.headers = {{"Access-Control-Allow-Methods", std::string(allow)},
                        {"Access-Control-Allow-Headers", "authorization, content-type, x-request-id, *"},
                        {"Access-Control-Max-Age", "600"}};
    return response;
}

std::optional<Response> check_key(const RequestHead& head, const ServerState& server, RequestContext& context) {
    if (context.route.access == Access::open) return std::nullopt;
    constexpr std::string_view kScheme = "bearer ";
    std::string_view key = head.authorization;
    const bool is_bearer = lower(key.substr(0, kScheme.size())) == kScheme;
    if (is_bearer) key.remove_prefix(kScheme.size());
    const auto caller = server.keys.find(is_bearer ? key : std::string_view{});
    if (!caller)
        return error_response(make_error(Errc::unauthenticated, "A valid key is needed: Authorization: Bearer KEY."));
    if (context.route.access == Access::admin && !caller->admin)
        return error_response(make_error(Errc::forbidden, "This route needs an admin's key."));
    context.caller = *caller;
    return std::nullopt;
}

std::optional<Response> check_content_type(const RequestHead& head, const RequestContext& context) {
    if (!context.route.has_body) return std::nullopt;
    if (head.content_type && is_json(*head.content_type)) return std::nullopt;
    // A browser may send a body without a type to anyone unasked; only requests that no page made may leave it out.
    if (!head.content_type && !head.origin) return std::nullopt;
    if (context.route.is_body_optional && !head.has_body && !head.content_type) return std::nullopt;
    return error_response(make_error(Errc::unsupported_media, "The body must be application/json."));
}

Response not_found(const RequestHead& head) {
    std::string what = std::string(head.method) + " " + std::string(head.target.substr(0, 200));
    return error_response(make_error(Errc::not_found, "Not Found: there is no route " + what + "."));
}

}  // namespace

std::optional<Response> check_request(const RequestHead& head, const ServerState& server, RequestContext& context) {
    context.request_id = request_id(head.request_id);
    context.is_head = head.method == "HEAD";
    RouteResult found = find_route(head.method, head.target);
    // A preflight asks about another method; one without is answered from the path alone.
    const bool is_options = head.method == "OPTIONS";
    const std::string_view access_method = is_options ? head.preflight_method : head.method;
    const auto subject = is_options ? find_route(access_method, head.target).match : found.match;
    const Access access = subject ? subject->access : Access::client;
    if (auto refusal = check_host_and_origin(head, server, access, context)) return refusal;
    if (!found.match && found.allow.empty()) return not_found(head);
    if (is_options) {
        Response response = preflight(found.allow);
        response.headers.emplace_back("Allow", found.allow);
        return response;
    }
    if (!found.match) {
        Response response = error_response(make_error(
            Errc::method_not_allowed, std::string(head.method) + " is not offered here, only " + found.allow + "."));
        response.headers.emplace_back("Allow", found.allow);
        return response;
    }
    context.route = std::move(*found.match);
    if (!is_valid_utf8(context.route.name))
        return error_response(make_error(Errc::invalid_argument, "The name in the path is not UTF-8."));
    if (auto refusal = check_key(head, server, context)) return refusal;
    return check_content_type(head, context);
}

}  // namespace attune
