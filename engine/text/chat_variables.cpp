#include "engine/text/chat_variables.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/from_json.hpp"
#include "engine/text/jinja/text.hpp"
#include "engine/text/jinja/token.hpp"

#include <algorithm>
#include <array>

namespace attune {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Text;
using jinja::Value;

// The reference's own mark: templates see it as the message's last characters.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

/// Roles that chat formats know. Templates build control tokens from them ('<|' + role + '|>'), so these words are no
/// user text; any other role stays literal.
constexpr std::array<std::string_view, 11> kRoles = {
    "system", "user",    "assistant",   "tool",          "function",  "developer",
    "model",  "ipython", "observation", "tool_response", "tool_call",
};

/// Names that a request may not bring: the template's own inputs and functions.
constexpr std::array<std::string_view, 14> kReserved = {
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "range",
    "dict",
    "namespace",
    "raise_exception",
    "strftime_now",
    "joiner",
    "cycler",
    "chat_template",
    "tokenize",
};

template <class Names>
bool is_one_of(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

Error bad_messages(const std::string& message) { return make_error(Errc::invalid_argument, message, "messages"); }

bool is_text_part(const Value& part) {
    if (!part.is_dict()) return false;
    const Value* text = part.dict().find("text");
    return text != nullptr && text->is_text();
}

/// A list of text parts as one text, a line each.
Value joined_parts(const Value& content) {
    if (!content.is_list_or_tuple()) return content;
    const auto& parts = content.list().items;
    if (parts.empty() || !std::all_of(parts.begin(), parts.end(), is_text_part)) return content;
    jinja::TextBuilder builder;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) builder.append("\n", true);
        builder.append(parts[i].dict().find("text")->text());
    }
    return builder.take();
}

/// Keys that are null go; known roles lose their literal mark; reasoning is there under the names templates use.
Value prepared_message(const Dict& message, bool reads_parts) {
    Dict made;
    made.from_request = true;
    const Value* reasoning = nullptr;
    for (const std::string_view name : kReasoning) {
        const Value* found = message.find(name);
        if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
    }
    // As {"thinking": r, **message, "reasoning_content": r}: the order shows when a template prints a message.
    const auto key = [](std::string_view name) { return Value(Text(std::string(name), true)); };
    if (reasoning != nullptr) made.set(key("thinking"), *reasoning);
    for (const auto& [name, value] : message.entries) {
        if (value.is_none()) continue;
        const bool known_role = name.bytes() == "role" && value.is_text() && is_one_of(kRoles, value.bytes());
        if (known_role) {
            made.set(name, Value(value.bytes()));
        } else {
            made.set(name, name.bytes() == "content" && !reads_parts ? joined_parts(value) : value);
        }
    }
    if (reasoning != nullptr) made.set(key("reasoning_content"), *reasoning);
    return made;
}

Text with_tag(const Text& text) {
    jinja::TextBuilder builder;
    builder.append(text);
    builder.append(kContinueTag, true);
    return builder.take();
}

/// Marks the end of the final message's text; gives that text.
Result<std::string> mark_continuation(Dict& message) {
    const Value* content = message.find("content");
    if (content == nullptr) return bad_messages("continue_final_message: the final message has no content");
    if (content->is_text()) {
        std::string continued = content->bytes();
        message.set(Value("content"), with_tag(content->text()));
        return continued;
    }
    List parts;
    if (content->is_list_or_tuple()) parts = content->list();
    for (auto part = parts.items.rbegin(); part != parts.items.rend(); ++part) {
        if (!is_text_part(*part)) continue;
        Dict marked = part->dict();
        std::string continued = marked.find("text")->bytes();
        marked.set(Value("text"), with_tag(marked.find("text")->text()));
        *part = Value(std::move(marked));
        message.set(Value("content"), std::move(parts));
        return continued;
    }
    return bad_messages("continue_final_message: the final message has no text to continue");
}

Value json_or_none(const std::string& json) { return json.empty() ? Value() : jinja::value_from_json(json); }

Result<void> add_keyword_arguments(const ChatPrompt& chat, ChatVariables& variables) {
    constexpr const char* kParam = "chat_template_kwargs";
    const Value arguments = json_or_none(chat.template_kwargs_json);
    if (arguments.is_none()) return {};
    if (!arguments.is_dict()) {
        return make_error(Errc::invalid_argument, "chat_template_kwargs must be an object", kParam);
    }
    for (const auto& [name, value] : arguments.dict().entries) {
        if (is_one_of(kReserved, name.bytes()) || name.bytes().ends_with("_token")) {
            return make_error(Errc::invalid_argument,
                              "chat_template_kwargs may not replace \"" + name.bytes() + "\" of the template", kParam);
        }
        variables.list.push_back({name.bytes(), value});
    }
    return {};
}

Result<Value> prepared_messages(const ChatPrompt& chat, bool reads_parts, ChatVariables& variables) {
    const Value messages = jinja::value_from_json(chat.messages_json);
    if (!messages.is_list_or_tuple()) return bad_messages("messages must be a list");
    List list;
    list.from_request = true;
    const auto& items = messages.list().items;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!items[i].is_dict()) return bad_messages("each of messages must be an object");
        Value message = prepared_message(items[i].dict(), reads_parts);
        if (chat.continue_final_message && i + 1 == items.size()) {
            Dict marked = message.dict();
            auto continued = mark_continuation(marked);
            if (!continued) return continued.error();
            variables.continued = std::move(*continued);
            message = Value(std::move(marked));
        }
        list.items.push_back(std::move(message));
    }
    if (chat.continue_final_message && items.empty()) {
        return bad_messages("continue_final_message: there is no message to continue");
    }
    return Value(std::move(list));
}

}  // namespace

Result<ChatVariables> chat_variables(const ChatPrompt& chat,
                                     const std::vector<std::pair<std::string, std::string>>& tokens, bool reads_parts) {
    if (chat.continue_final_message && chat.add_generation_prompt) {
        return make_error(Errc::invalid_argument, "continue_final_message and add_generation_prompt exclude each other",
                          "continue_final_message");
    }
    ChatVariables variables;
    try {
        auto messages = prepared_messages(chat, reads_parts, variables);
        if (!messages) return messages.error();
        variables.list.push_back({"messages", std::move(*messages)});
        variables.list.push_back({"tools", json_or_none(chat.tools_json)});
        variables.list.push_back({"documents", json_or_none(chat.documents_json)});
        variables.list.push_back({"add_generation_prompt", Value(chat.add_generation_prompt)});
        for (const auto& [name, text] : tokens) variables.list.push_back({name, Value(text)});
        if (auto added = add_keyword_arguments(chat, variables); !added) return added.error();
    } catch (const jinja::Failure& failure) {
        return make_error(Errc::invalid_argument, failure.what(), "messages");
    }
    return variables;
}

bool reads_content_parts(std::string_view source) {
    std::vector<jinja::Token> tokens;
    try {
        tokens = jinja::tokenize(source);
    } catch (const jinja::Failure&) {
        return false;  // the parser will say what is wrong
    }
    bool in_loop_head = false;
    bool after_in = false;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const jinja::Token& token = tokens[i];
        if (token.kind == jinja::TokenKind::block_begin) {
            in_loop_head = i + 1 < tokens.size() && tokens[i + 1].is_name("for");
            after_in = false;
        } else if (token.kind == jinja::TokenKind::block_end) {
            in_loop_head = false;
        } else if (in_loop_head && token.is_name("in")) {
            after_in = true;
        } else if (in_loop_head && after_in && token.text == "content") {
            return true;
        }
    }
    return false;
}

Result<void> cut_at_continuation(jinja::Text& text, const std::string& continued) {
    std::string_view tag = kContinueTag;
    tag.remove_suffix(1);
    const std::size_t at = text.bytes.rfind(tag);
    const std::string wanted = jinja::strip(Text(continued), jinja::Side::both).bytes;
    if (at == std::string::npos || text.bytes.find(wanted) == std::string::npos) {
        return bad_messages("continue_final_message: the chat template changes or leaves out the final message");
    }
    // A template that trims contents has eaten the mark's last space, and then spaces before it count for nothing.
    const bool kept_spaces = std::string_view(text.bytes).substr(at).starts_with(kContinueTag);
    text = jinja::slice_bytes(text, 0, at);
    if (!kept_spaces) text = jinja::strip(text, jinja::Side::right);
    return {};
}

}  // namespace attune
