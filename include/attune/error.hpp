#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace attune {

/// Every foreseen failure of the house. net maps each to an HTTP status in one table; actors carry it as caf::error.
enum class Errc : std::uint8_t {
    ok = 0,
    invalid_argument,    ///< the request or setting is wrong (400)
    context_exceeded,    ///< prompt + max_tokens does not fit (400)
    already_exists,      ///< the module name is taken (400, as vLLM)
    unauthenticated,     ///< no or unknown key (401)
    forbidden,           ///< right key, wrong role; foreign Origin or Host (403)
    not_found,           ///< route or path unknown (404)
    unknown_model,       ///< base or module name unknown (404)
    method_not_allowed,  ///< (405)
    conflict,            ///< expected_generation does not match (409)
    payload_too_large,   ///< (413)
    unsupported_media,   ///< (415)
    invalid_module,      ///< a module's files are wrong, or it does not fit this base (422)
    overloaded,          ///< a queue or budget is full (429, Retry-After)
    unsupported,         ///< known, but not offered (501)
    unavailable,         ///< starting, draining, or an order that may succeed later (503)
    base_damaged,        ///< the audit found the resident base changed (503)
    no_room,             ///< no blocks or slot bytes now (503)
    timeout,             ///< a cold module was not ready in time (504)
    cancelled,           ///< the client left
    non_finite,          ///< logits were not finite (500)
    io,                  ///< a file could not be read (500 unless mapped by the caller)
    internal,            ///< our own fault (500)
};

/// A failure with a sentence that names the culprit. Messages never contain a path of the server.
struct Error {
    Errc code = Errc::internal;
    std::string message;
    std::string param;  ///< request field at fault, empty when none
};

inline Error make_error(Errc code, std::string message, std::string param = {}) {
    return Error{code, std::move(message), std::move(param)};
}

}  // namespace attune
