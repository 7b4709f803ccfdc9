#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "engine/text/jinja/template.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// What a chat template sees of a request, prepared as transformers' apply_chat_template does it.
struct ChatVariables {
    std::vector<jinja::Variable> list;
    std::string_view continued;  ///< the final message's text, when it is to be continued
};

/// What of a request a template looks at; the rest is not even parsed.
struct TemplateReads {
    bool parts = false;  ///< goes through a content's parts itself; otherwise lists of text parts become one text
    bool tools = false;
    bool documents = false;
    bool clock = false;
};
TemplateReads reads_of(const jinja::Template& code, std::string_view source);

/// The values live in `arena` and share the strings of `chat` and `tokens`: all three must outlive the rendering.
Result<ChatVariables> chat_variables(jinja::Arena& arena, const ChatPrompt& chat,
                                     const std::vector<std::pair<std::string, std::string>>& tokens,
                                     const TemplateReads& reads);

/// Cuts the rendered text right after the final message's content, which chat_variables() marked.
Result<void> cut_at_continuation(jinja::Arena& arena, jinja::Text& text, std::string_view continued);

}  // namespace attune
