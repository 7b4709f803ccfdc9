#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "attune/settings.hpp"

namespace attune {

/// Checks every range of the parameters as vLLM does; Errc::invalid_argument with the field's name as `param`.
/// net asks at the edge; the engine asks again before a sequence is made.
Result<void> validate(const SamplingParams& params, int vocab_size, const LimitSettings& limits);

}  // namespace attune
