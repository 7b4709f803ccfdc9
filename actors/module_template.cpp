#include "actors/module_template.hpp"

#include "engine/files/quote.hpp"
#include "engine/text/chat_template.hpp"

#include <utility>

namespace attune {

MakeTemplate template_maker(std::shared_ptr<const Tokenizer> tokenizer) {
    if (!tokenizer) return nullptr;
    return [base = std::move(tokenizer)](const TemplateSource& source,
                                         const Tokenizer* own) -> Result<std::shared_ptr<const ChatTemplate>> {
        const Tokenizer& reader = own != nullptr ? *own : *base;
        for (const auto& [name, content] : source.named_tokens)
            if (source.mentions(name) && reader.encode(content, /*add_special_tokens=*/false).size() != 1)
                return make_error(Errc::invalid_module, name + " " + in_quotes(content) + " is no token of the base");
        return ChatTemplate::make(source.usual, source.with_tools, source.named_tokens);
    };
}

MakeTokenizer tokenizer_maker(std::shared_ptr<const Tokenizer> tokenizer) {
    if (!tokenizer) return nullptr;
    return [base = std::move(tokenizer)](const AddedTokenFacts& added) {
        std::vector<AddedToken> more;
        for (const auto& [content, fact] : added)
            more.push_back(
                {fact.id, content, fact.single_word, fact.lstrip, fact.rstrip, fact.normalized, fact.special});
        return base->with_added(std::move(more));
    };
}

}  // namespace attune
