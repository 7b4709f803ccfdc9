#include "actors/module_template.hpp"

#include "engine/files/quote.hpp"
#include "engine/text/chat_template.hpp"

#include <utility>

namespace attune {

MakeTemplate template_maker(std::shared_ptr<const Tokenizer> tokenizer) {
    if (!tokenizer) return nullptr;
    return [tokenizer =
                std::move(tokenizer)](const TemplateSource& source) -> Result<std::shared_ptr<const ChatTemplate>> {
        for (const auto& [name, content] : source.named_tokens)
            if (source.mentions(name) && tokenizer->encode(content, /*add_special_tokens=*/false).size() != 1)
                return make_error(Errc::invalid_module, name + " " + in_quotes(content) + " is no token of the base");
        return ChatTemplate::make(source.usual, source.with_tools, source.named_tokens);
    };
}

}  // namespace attune
