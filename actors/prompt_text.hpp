#pragma once

#include "attune/result.hpp"
#include "engine/module/module_text.hpp"

#include <memory>
#include <string>
#include <vector>

namespace attune {

/// How texts are written and read under a request's modules, where that is not the base's way.
struct PromptText {
    std::shared_ptr<const ChatTemplate> chat_template;  ///< null: the base's
    std::shared_ptr<const Tokenizer> tokenizer;         ///< null: the base's
    int vocab_size = 0;                                 ///< of the modules, where it is more than the base's
    /// Takes over what a module brings.
    void follow(const ModuleText& text);
};

/// A module that brings its own chat template or tokenizer, under the name it was asked for.
struct NamedText {
    std::string module;
    ModuleTextPtr text;
};

/// A request can follow one template and one tokenizer: Errc::invalid_argument names two modules that differ. Prompts
/// other than chats need no template.
Result<PromptText> prompt_text(const std::vector<NamedText>& texts, bool is_chat);

}  // namespace attune
