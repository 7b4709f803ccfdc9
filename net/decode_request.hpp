#pragma once

#include "attune/result.hpp"
#include "net/api_request.hpp"

#include <boost/json/object.hpp>

namespace attune {

/// Bodies of /v1/completions and /v1/chat/completions. Known fields are checked for type and range; fields that would
/// change the answer and are not offered are refused by name; unknown ones are accepted and listed for the log.
Result<ApiRequest> decode_completion(const boost::json::object& body, const DecodeContext& context);
Result<ApiRequest> decode_chat(const boost::json::object& body, const DecodeContext& context);

/// Body of /v1/routes/try: one of `messages`, `prompt` (one), `text`, or none; `model` ("auto" when absent), `user`;
/// `task_id` and `tags` at the top or under `attune`. Everything else of a request may be there and is not looked at.
Result<GenerationRequest> decode_route_trial(const boost::json::object& body, const DecodeContext& context);

}  // namespace attune
