#pragma once

#include "attune/result.hpp"
#include "net/api_request.hpp"

#include <boost/json/object.hpp>

#include <string>
#include <vector>

namespace attune {

/// Bodies of /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's texts for missing names; the route gives
/// the errors vLLM's type InvalidUserInput.
Result<LoadModuleRequest> decode_load_adapter(const boost::json::object& body);
Result<std::string> decode_unload_adapter(const boost::json::object& body);

/// `model` may be absent: the base.
Result<TokenizeRequest> decode_tokenize(const boost::json::object& body, const DecodeContext& context);

struct DetokenizeBody {
    std::string model;
    std::vector<TokenId> tokens;
};
Result<DetokenizeBody> decode_detokenize(const boost::json::object& body, const DecodeContext& context);

}  // namespace attune
