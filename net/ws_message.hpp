#pragma once

#include "attune/result.hpp"
#include "net/api_request.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// One message of a WebSocket client, taken apart (DESIGN, WebSocket).
struct WsMessage {
    enum class Kind { hello, request, cancel };

    Kind kind = Kind::hello;
    std::string id;                             ///< of a request or cancel; empty when it could not be read
    std::string user;                           ///< of a hello
    std::optional<Result<ApiRequest>> request;  ///< of a request: what its body says, or what is wrong with it
    std::optional<Error> fault;                 ///< the message itself is unreadable
};

/// `context` with always_stream. Never fails: faults are told to the client under the message's id.
WsMessage decode_ws_message(std::string_view text, const DecodeContext& context);

}  // namespace attune
