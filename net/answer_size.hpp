#pragma once

#include "net/api_request.hpp"

#include <cstdint>

namespace attune {

/// The fewest bytes that a whole, successful answer to the request can have, as far as the request alone tells:
/// prompts that come back, their log-probabilities, and tokens that are certain to be made. What would never fit is
/// refused before any work.
std::uint64_t least_answer_bytes(const ApiRequest& request);

}  // namespace attune
