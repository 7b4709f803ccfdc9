#pragma once

#include "attune/result.hpp"
#include "engine/module/json_text.hpp"
#include "engine/module/peft_config.hpp"

namespace attune {

/// Every key of an adapter_config.json is known for its kind: read, without effect, or refused by name when it is set.
/// An unknown key that is set could change the result, so it is refused too. Errc::invalid_module.
Result<void> check_peft_keys(const OrderedJson& config, PeftType type);

}  // namespace attune
