#include "net/errors.hpp"

#include "net/json_text.hpp"

namespace attune {

int http_status(Errc code) {
    switch (code) {
        case Errc::ok:
            return 200;
        case Errc::invalid_argument:
        case Errc::context_exceeded:
        case Errc::already_exists:
            return 400;
        case Errc::unauthenticated:
            return 401;
        case Errc::forbidden:
            return 403;
        case Errc::not_found:
        case Errc::unknown_model:
            return 404;
        case Errc::method_not_allowed:
            return 405;
        case Errc::conflict:
            return 409;
        case Errc::payload_too_large:
            return 413;
        case Errc::unsupported_media:
            return 415;
        case Errc::invalid_module:
            return 422;
        case Errc::overloaded:
            return 429;
        case Errc::unsupported:
            return 501;
        case Errc::unavailable:
        case Errc::base_damaged:
        case Errc::no_room:
        case Errc::cancelled:
            return 503;  // a client that is still there was cancelled by a shutdown
        case Errc::timeout:
            return 504;
        case Errc::non_finite:
        case Errc::io:
        case Errc::internal:
            return 500;
    }
    return 500;
}

std::string_view error_type(int status) {
    switch (status) {
        case 401:
            return "AuthenticationError";
        case 403:
            return "PermissionDeniedError";
        case 404:
            return "NotFoundError";
        case 409:
            return "ConflictError";
        case 422:
            return "UnprocessableEntityError";
        case 429:
            return "RateLimitError";
        case 501:
            return "NotImplementedError";
        case 503:
        case 504:
            return "ServiceUnavailableError";
        default:
            return status < 500 ? "BadRequestError" : "InternalServerError";
    }
}

std::string error_object(const Error& error, std::string_view type) {
    return error_object(http_status(error.code), error.message, error.param, type);
}

std::string error_object(int status, std::string_view message, std::string_view param, std::string_view type) {
    std::string out = R"({"message":)";
    append_json_string(out, message);
    out += R"(,"type":)";
    append_json_string(out, type.empty() ? error_type(status) : type);
    out += R"(,"param":)";
    if (param.empty())
        out += "null";
    else
        append_json_string(out, param);
    out += R"(,"code":)";
    append_json_number(out, std::int64_t{status});
    out += '}';
    return out;
}

std::string error_body(const Error& error, std::string_view type) {
    return R"({"error":)" + error_object(error, type) + '}';
}

}  // namespace attune
