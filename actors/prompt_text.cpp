#include "actors/prompt_text.hpp"

#include <algorithm>

namespace attune {
namespace {

Error differ(const NamedText& a, const NamedText& b, const char* what) {
    return make_error(Errc::invalid_argument,
                      "modules `" + a.module + "` and `" + b.module + "` bring different " + what +
                          ": one request can follow one of them",
                      "modules");
}

}  // namespace

void PromptText::follow(const ModuleText& text) {
    if (text.chat_template) chat_template = text.chat_template;
    if (text.tokenizer) tokenizer = text.tokenizer;
    vocab_size = std::max(vocab_size, text.vocab_size);
}

Result<PromptText> prompt_text(const std::vector<NamedText>& texts, bool is_chat) {
    PromptText text;
    const NamedText* with_template = nullptr;
    const NamedText* with_tokenizer = nullptr;
    for (const NamedText& named : texts) {
        const ModuleText& own = *named.text;
        if (own.chat_template) {
            if (is_chat && with_template != nullptr && !(with_template->text->source == own.source))
                return differ(*with_template, named, "chat templates");
            with_template = &named;
        }
        if (own.tokenizer) {
            if (with_tokenizer != nullptr && with_tokenizer->text->added != own.added)
                return differ(*with_tokenizer, named, "tokenizers");
            with_tokenizer = &named;
        }
        text.follow(own);
    }
    return text;
}

}  // namespace attune
