#pragma once

#include "attune/gateway.hpp"
#include "attune/request.hpp"
#include "attune/settings.hpp"

#include <string>
#include <vector>

namespace attune {

enum class Endpoint { completions, chat };

/// A decoded body of /v1/completions or /v1/chat/completions: what to generate and how the client wants it told.
struct ApiRequest {
    Endpoint endpoint = Endpoint::completions;
    std::string model;
    bool stream = false;
    bool include_usage = false;           ///< a last chunk with usage and no choices
    bool continuous_usage_stats = false;  ///< running usage in every chunk
    bool logprobs = false;
    bool echo = false;
    bool prompt_logprobs = false;
    int choices_per_prompt = 1;
    std::vector<GenerationRequest> prompts;  ///< one per prompt; choice j of prompt p has index p * n + j
    std::string unknown_fields;              ///< for the log; empty: none

    int choices() const { return static_cast<int>(prompts.size()) * choices_per_prompt; }
};

/// What decoding needs to know of the server.
struct DecodeContext {
    const ServerInfo& info;
    const LimitSettings& limits;
    bool always_stream = false;  ///< WebSocket: every answer is streamed whatever `stream` says
};

}  // namespace attune
