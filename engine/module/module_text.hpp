#pragma once

#include "attune/result.hpp"
#include "engine/module/tokenizer_facts.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

class ChatTemplate;  // both of engine/text, which a build of the engine alone does not have
class Tokenizer;

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

/// How a module wants its texts to be written and read, where that is not the base's way: a chat template, a tokenizer
/// with more added tokens, or both.
struct ModuleText {
    TemplateSource source;                                   ///< of the template
    std::shared_ptr<const ChatTemplate> chat_template = {};  ///< null: the base's
    AddedTokenFacts added = {};                              ///< what the tokenizer has beyond the base's
    std::shared_ptr<const Tokenizer> tokenizer = {};         ///< null: the base's
    int vocab_size = 0;                                      ///< ids that base and module have rows for
};
using ModuleTextPtr = std::shared_ptr<const ModuleText>;

/// Makes a tokenizer from the base's and more added tokens, or says why it cannot be. Given to the loader, like the
/// next, by whoever has a tokenizer.
using MakeTokenizer = std::function<Result<std::shared_ptr<const Tokenizer>>(const AddedTokenFacts& added)>;
/// Reads a module's template, or says why it cannot be served. `tokenizer`: the module's own; null: the base's.
using MakeTemplate = std::function<Result<std::shared_ptr<const ChatTemplate>>(const TemplateSource& source,
                                                                               const Tokenizer* tokenizer)>;

}  // namespace attune
