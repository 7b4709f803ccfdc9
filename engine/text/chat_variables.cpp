#include "engine/text/chat_variables.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/from_json.hpp"
#include "engine/text/jinja/text.hpp"
#include "engine/text/jinja/token.hpp"

#include <algorithm>
#include <array>

namespace attune {
namespace {

using jinja::Arena;
using jinja::Dict;
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
    return std::any_of(names.begin(), names.end(), [&](std::string_view one) { return jinja::same_bytes(one, name); });
}

Error bad_messages(const std::string& message) { return make_error(Errc::invalid_argument, message, "messages"); }

bool is_text_part(const Value& part) {
    if (!part.is_dict()) return false;
    const Value* text = part.dict().find("text");
    return text != nullptr && text->is_text();
}

/// A list of text parts as one text, a line each.
Value joined_parts(Arena& arena, const Value& content) {
    if (!content.is_list_or_tuple()) return content;
    const auto parts = content.list().items;
    if (parts.empty() || !std::all_of(parts.begin(), parts.end(), is_text_part)) return content;
    jinja::TextBuilder builder(arena);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) builder.append("\n", true);
        builder.append(parts[i].dict().find("text")->text());
    }
    return builder.take();
}

bool is_known_role(const Value& name, const Value& value) {
    return jinja::same_bytes(name.bytes(), "role") && value.is_text() && is_one_of(kRoles, value.bytes());
}

/// A message from whose keys some go, or that says its reasoning under one name of several.
Dict* rewritten_message(Arena& arena, const Dict& message) {
    Dict* made = arena.make<Dict>(arena);
    made->from_request = true;
    made->reserve(message.entries().size());
    const Value* reasoning = nullptr;
    for (const std::string_view name : kReasoning) {
        const Value* found = message.find(name);
        if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
    }
    // As {"thinking": r, **message, "reasoning_content": r}: the order shows when a template prints a message.
    const auto key = [](std::string_view name) { return Value(Text(name, true)); };
    if (reasoning != nullptr) made->set(key("thinking"), *reasoning);
    for (const auto& [name, value] : message.entries()) {
        if (!value.is_none()) made->set(name, value);
    }
    if (reasoning != nullptr) made->set(key("reasoning_content"), *reasoning);
    return made;
}

/// Keys that are null go; known roles lose their literal mark; reasoning is there under the names templates use.
/// `message` was made a moment ago from the request's JSON and nobody else has seen it: it is changed in place.
Dict* prepared_message(Arena& arena, Dict* message, bool reads_parts) {
    const auto is_rewritten = [](const Dict::Entry& entry) {
        return entry.value.is_none() || is_one_of(kReasoning, entry.key.bytes());
    };
    const auto entries = message->entries();
    if (std::any_of(entries.begin(), entries.end(), is_rewritten)) message = rewritten_message(arena, *message);
    message->for_each([&](const Value& name, Value& value) {
        if (is_known_role(name, value)) value = Value(value.bytes());
        if (!reads_parts && jinja::same_bytes(name.bytes(), "content")) value = joined_parts(arena, value);
    });
    return message;
}

Text with_tag(Arena& arena, const Text& text) {
    jinja::TextBuilder builder(arena);
    builder.append(text);
    builder.append(kContinueTag, true);
    return builder.take();
}

/// Marks the end of the final message's text; gives that text.
Result<std::string_view> mark_continuation(Arena& arena, Dict& message) {
    const Value* content = message.find("content");
    if (content == nullptr) return bad_messages("continue_final_message: the final message has no content");
    if (content->is_text()) {
        const std::string_view continued = content->bytes();
        message.set(Value("content"), with_tag(arena, content->text()));
        return continued;
    }
    jinja::Values parts(arena);
    if (content->is_list_or_tuple()) parts.append(content->list().items);
    for (std::size_t i = parts.size(); i-- > 0;) {
        if (!is_text_part(parts[i])) continue;
        Dict* marked = arena.make<Dict>(arena, parts[i].dict());
        const Text text = marked->find("text")->text();
        marked->set(Value("text"), with_tag(arena, text));
        parts[i] = marked;
        message.set(Value("content"), jinja::make_list(parts, content->list().from_request));
        return text.bytes();
    }
    return bad_messages("continue_final_message: the final message has no text to continue");
}

Value json_or_none(Arena& arena, const std::string& json) {
    return json.empty() ? Value() : jinja::value_from_json(arena, json);
}

Result<void> add_keyword_arguments(Arena& arena, const ChatPrompt& chat, ChatVariables& variables) {
    constexpr const char* kParam = "chat_template_kwargs";
    const Value arguments = json_or_none(arena, chat.template_kwargs_json);
    if (arguments.is_none()) return {};
    if (!arguments.is_dict()) {
        return make_error(Errc::invalid_argument, "chat_template_kwargs must be an object", kParam);
    }
    for (const auto& [name, value] : arguments.dict().entries()) {
        if (is_one_of(kReserved, name.bytes()) || name.bytes().ends_with("_token")) {
            return make_error(
                Errc::invalid_argument,
                "chat_template_kwargs may not replace \"" + std::string(name.bytes()) + "\" of the template", kParam);
        }
        variables.list.push_back({name.bytes(), value});
    }
    return {};
}

Result<Value> prepared_messages(Arena& arena, const ChatPrompt& chat, bool reads_parts, ChatVariables& variables) {
    const Value messages = jinja::value_from_json(arena, chat.messages_json);
    if (!messages.is_list_or_tuple()) return bad_messages("messages must be a list");
    const auto items = messages.list().items;
    jinja::Values prepared(arena);
    prepared.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!items[i].is_dict()) return bad_messages("each of messages must be an object");
        Dict* message = prepared_message(arena, const_cast<Dict*>(&items[i].dict()), reads_parts);
        if (chat.continue_final_message && i + 1 == items.size()) {
            auto continued = mark_continuation(arena, *message);
            if (!continued) return continued.error();
            variables.continued = *continued;
        }
        prepared.push_back(message);
    }
    if (chat.continue_final_message && items.empty()) {
        return bad_messages("continue_final_message: there is no message to continue");
    }
    return jinja::make_list(prepared, true);
}

/// Whether a template has a loop over a message's content.
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

}  // namespace

Result<ChatVariables> chat_variables(Arena& arena, const ChatPrompt& chat,
                                     const std::vector<std::pair<std::string, std::string>>& tokens,
                                     const TemplateReads& reads) {
    if (chat.continue_final_message && chat.add_generation_prompt) {
        return make_error(Errc::invalid_argument, "continue_final_message and add_generation_prompt exclude each other",
                          "continue_final_message");
    }
    ChatVariables variables;
    try {
        auto messages = prepared_messages(arena, chat, reads.parts, variables);
        if (!messages) return messages.error();
        variables.list.reserve(tokens.size() + 8);
        variables.list.push_back({"messages", *messages});
        if (reads.tools) variables.list.push_back({"tools", json_or_none(arena, chat.tools_json)});
        if (reads.documents) variables.list.push_back({"documents", json_or_none(arena, chat.documents_json)});
        variables.list.push_back({"add_generation_prompt", Value(chat.add_generation_prompt)});
        for (const auto& [name, text] : tokens) variables.list.push_back({name, Value(std::string_view(text))});
        if (auto added = add_keyword_arguments(arena, chat, variables); !added) return added.error();
    } catch (const jinja::Failure& failure) {
        return make_error(Errc::invalid_argument, failure.what(), "messages");
    }
    return variables;
}

TemplateReads reads_of(const jinja::Template& code, std::string_view source) {
    return {reads_content_parts(source), code.names("tools"), code.names("documents"), code.names("strftime_now")};
}

Result<void> cut_at_continuation(Arena& arena, Text& text, std::string_view continued) {
    try {
        std::string_view tag = kContinueTag;
        tag.remove_suffix(1);
        const std::size_t at = text.bytes().rfind(tag);
        const std::string_view wanted = jinja::strip(arena, Text(continued), jinja::Side::both).bytes();
        if (at == std::string_view::npos || text.bytes().find(wanted) == std::string_view::npos) {
            return bad_messages("continue_final_message: the chat template changes or leaves out the final message");
        }
        // A template that trims contents has eaten the mark's last space, and then spaces before it count for nothing.
        const bool kept_spaces = text.bytes().substr(at).starts_with(kContinueTag);
        text = jinja::slice_bytes(arena, text, 0, at);
        if (!kept_spaces) text = jinja::strip(arena, text, jinja::Side::right);
        return {};
    } catch (const jinja::Failure& failure) {  // no memory left for the cut
        return bad_messages(failure.what());
    }
}

}  // namespace attune
