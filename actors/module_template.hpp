#pragma once

#include "engine/module/module_text.hpp"
#include "engine/text/tokenizer.hpp"

#include <memory>

namespace attune {

/// Reads the templates that modules bring for a base with this tokenizer. Each special token that a template names must
/// be one token of the base. Null without a tokenizer: such modules are refused.
MakeTemplate template_maker(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace attune
