#pragma once

#include "attune/result.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

class ChatTemplate;  // of engine/text, which a build of the engine alone does not have

/// What a chat template is made from.
struct TemplateSource {
    std::string usual;
    std::optional<std::string> with_tools;  ///< for requests that bring tools
    /// What the source means by bos_token, eos_token and the like.
    std::vector<std::pair<std::string, std::string>> named_tokens;
    bool mentions(const std::string& name) const {
        return usual.find(name) != std::string::npos || (with_tools && with_tools->find(name) != std::string::npos);
    }
    friend bool operator==(const TemplateSource&, const TemplateSource&) = default;
};

/// How a module wants its chats to be written, where that is not the base's way. The tokenizer is the base's.
struct ModuleText {
    TemplateSource source;
    std::shared_ptr<const ChatTemplate> chat_template;
};

/// Reads a module's template, or says why the base cannot serve it. Given to the loader by whoever has a tokenizer.
using MakeTemplate = std::function<Result<std::shared_ptr<const ChatTemplate>>(const TemplateSource&)>;

}  // namespace attune
