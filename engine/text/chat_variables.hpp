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
    std::string continued;  ///< the final message's text, when it is to be continued
};

/// `reads_parts`: the template goes through a content's parts itself; otherwise lists of text parts become one text.
Result<ChatVariables> chat_variables(const ChatPrompt& chat,
                                     const std::vector<std::pair<std::string, std::string>>& tokens, bool reads_parts);

/// Whether a template has a loop over a message's content.
bool reads_content_parts(std::string_view source);

/// Cuts the rendered text right after the final message's content, which chat_variables() marked.
Result<void> cut_at_continuation(jinja::Text& text, const std::string& continued);

}  // namespace attune
