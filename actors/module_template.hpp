#pragma once

#include "engine/module/module_text.hpp"
#include "engine/text/tokenizer.hpp"

#include <memory>

namespace attune {

/// Reads the templates that modules bring for a base with this tokenizer. Each special token that a template names must
/// be one token of the base, or of the module where it has a tokenizer of its own. Null without a tokenizer: such
/// modules are refused.
MakeTemplate template_maker(std::shared_ptr<const Tokenizer> tokenizer);

/// Makes the tokenizers of modules that have more added tokens than the base; likewise.
MakeTokenizer tokenizer_maker(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace attune
