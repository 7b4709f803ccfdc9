#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "engine/text/tokenizer.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// A rendered chat: the text and which of its bytes came from the request's strings (literal for special tokens).
struct RenderedChat {
    std::string text;
    std::vector<TextSpan> literal;
};

/// A parsed Jinja template, as Hugging Face's apply_chat_template renders them: immutable, any thread. Bounded in
/// steps, output bytes, recursion and range(); a template that raises gives Errc::invalid_argument with its message.
class ChatTemplate {
public:
    static Result<std::shared_ptr<const ChatTemplate>> parse(std::string source, std::string bos_token,
                                                             std::string eos_token);
    /// `named_tokens`: what bos_token, eos_token and the like stand for. `with_tools` serves requests that bring tools.
    static Result<std::shared_ptr<const ChatTemplate>> make(
        std::string_view usual, const std::optional<std::string>& with_tools,
        std::vector<std::pair<std::string, std::string>> named_tokens);
    /// Of a Hugging Face folder: chat_template.jinja (and additional_chat_templates/tool_use.jinja), else
    /// `chat_template` in tokenizer_config.json. Of a GGUF file: tokenizer.chat_template (and .tool_use). Null without
    /// error when there is none.
    static Result<std::shared_ptr<const ChatTemplate>> open(const std::filesystem::path& model);
    virtual ~ChatTemplate() = default;

    virtual Result<RenderedChat> render(const ChatPrompt& chat) const = 0;
};

}  // namespace attune
