#include "net/decode_prompt.hpp"

#include "net/json_text.hpp"

#include <boost/json/array.hpp>

namespace attune {
namespace {

namespace json = boost::json;

constexpr std::size_t kTools = 128;
constexpr std::size_t kDocuments = 128;

std::string text_of(const json::string& text) { return {text.data(), text.size()}; }

class PromptDecoder {
public:
    PromptDecoder(FieldReader& fields, const DecodeContext& context, bool add_special_tokens)
        : fields_(fields), context_(context), add_special_tokens_(add_special_tokens) {}

    std::vector<Prompt> decode() {
        const auto* value = fields_.find("prompt");
        if (value == nullptr)
            fail("`prompt` is required: a string, a list of token ids, or a list of these.");
        else if (const auto* string = value->if_string())
            add_text(*string, "prompt");
        else if (const auto* list = value->if_array())
            add_list(*list);
        else
            fail("`prompt` must be a string, a list of token ids, or a list of these, got " + describe(*value) + ".");
        return std::move(prompts_);
    }

private:
    void fail(std::string message) { fields_.fail("prompt", std::move(message)); }

    void add_list(const json::array& list) {
        if (list.empty()) return fail("`prompt` is empty.");
        const bool many = list[0].is_string() || list[0].is_array();
        if (!many) return add_ids(list, "prompt");
        if (list.size() > static_cast<std::size_t>(context_.limits.prompts))
            return fail("`prompt` may hold at most " + std::to_string(context_.limits.prompts) + " prompts, got " +
                        std::to_string(list.size()) + ".");
        for (std::size_t i = 0; i < list.size() && fields_.ok(); ++i) {
            const std::string where = "prompt[" + std::to_string(i) + "]";
            if (list[0].is_string() && list[i].is_string())
                add_text(list[i].get_string(), where);
            else if (list[0].is_array() && list[i].is_array())
                add_ids(list[i].get_array(), where);
            else
                fail("`" + where + "` is " + describe(list[i]) + ": all prompts must be of one kind.");
        }
    }

    void add_text(const json::string& text, const std::string& where) {
        if (text.empty()) return fail("`" + where + "` is empty.");
        if (!context_.info.has_tokenizer) return fail("The model has no tokenizer: `" + where + "` must be token ids.");
        prompts_.emplace_back(TextPrompt{text_of(text), add_special_tokens_});
    }

    void add_ids(const json::array& list, const std::string& where) {
        if (list.empty()) return fail("`" + where + "` is empty.");
        prompts_.emplace_back(TokenPrompt{decode_ids(fields_, "prompt", list, context_.info.vocab_size, where)});
    }

    FieldReader& fields_;
    const DecodeContext& context_;
    bool add_special_tokens_;
    std::vector<Prompt> prompts_;
};

// Each part as {"type": "text", "text": ...}, other members kept: how they become one text is the template's to say.
void normalise_parts(FieldReader& fields, json::array& parts, const std::string& where) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].is_string()) parts[i] = json::object{{"type", "text"}, {"text", parts[i].get_string()}};
        const auto* part = parts[i].if_object();
        const auto* type = part == nullptr ? nullptr : part->if_contains("type");
        const auto* text = part == nullptr ? nullptr : part->if_contains("text");
        const bool is_text = type != nullptr && type->is_string() && type->get_string() == "text";
        if (is_text && text != nullptr && text->is_string()) continue;
        return fields.fail("messages", "`" + where + ".content[" + std::to_string(i) +
                                           R"(]` must be {"type": "text", "text": string})" +
                                           (type == nullptr ? "" : ", got type " + describe(*type)) +
                                           ": this server reads text only.");
    }
}

// Clients send a call's arguments as the JSON text the model made; templates want the object that it stands for.
void normalise_tool_calls(FieldReader& fields, json::value& calls, const std::string& where, int json_depth) {
    auto* list = calls.if_array();
    if (list == nullptr)
        return fields.fail("messages", "`" + where + "` must be a list of calls, got " + describe(calls) + ".");
    for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string call = where + "[" + std::to_string(i) + "]";
        auto* object = (*list)[i].if_object();
        if (object == nullptr)
            return fields.fail("messages", "`" + call + "` must be an object, got " + describe((*list)[i]) + ".");
        auto* function = object->if_contains("function");
        auto* inner = function == nullptr ? nullptr : function->if_object();
        auto* arguments = inner == nullptr ? nullptr : inner->if_contains("arguments");
        if (arguments == nullptr || !arguments->is_string()) continue;
        const std::string text = text_of(arguments->get_string());
        auto parsed = text.empty() ? Result<json::value>(json::object{}) : parse_json(text, json_depth);
        if (!parsed || !parsed->is_object())
            return fields.fail("messages", "`" + call + ".function.arguments` must be the text of a JSON object.");
        *arguments = std::move(*parsed);
    }
}

json::object normalise_message(FieldReader& fields, const json::value& value, const std::string& where,
                               int json_depth) {
    const auto* message = value.if_object();
    if (message == nullptr) {
        fields.fail("messages", "`" + where + "` must be an object, got " + describe(value) + ".");
        return {};
    }
    json::object normal = *message;
    const auto* role = normal.if_contains("role");
    if (role == nullptr || !role->is_string() || role->get_string().empty())
        fields.fail("messages", "`" + where + ".role` must be a string.");
    auto* content = normal.if_contains("content");
    if (content == nullptr || content->is_null()) {
        if (!normal.contains("tool_calls")) fields.fail("messages", "`" + where + ".content` is required.");
        normal["content"] = "";  // clients send null beside calls; many templates want a text
    } else if (content->is_array()) {
        if (content->get_array().empty()) *content = "";
        if (content->is_array()) normalise_parts(fields, content->get_array(), where);
    } else if (!content->is_string()) {
        fields.fail("messages", "`" + where + ".content` must be a string or a list of text parts, got " +
                                    describe(*content) + ".");
    }
    if (auto* calls = normal.if_contains("tool_calls"); calls != nullptr && !calls->is_null())
        normalise_tool_calls(fields, *calls, where + ".tool_calls", json_depth);
    return normal;
}

std::string decode_list(FieldReader& fields, std::string_view name, std::size_t max_items) {
    const auto* list = fields.array(name, max_items);
    if (list == nullptr || list->empty()) return {};
    for (const auto& item : *list)
        if (!item.is_object())
            fields.fail(name, "`" + std::string(name) + "` must hold objects, got " + describe(item) + ".");
    return to_json(*fields.find(name));
}

}  // namespace

std::vector<TokenId> decode_ids(FieldReader& fields, std::string_view name, const json::array& list, int vocab_size,
                                const std::string& where) {
    std::vector<TokenId> ids;
    ids.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
        const auto id = as_integer(list[i]);
        if (!id || *id < 0 || *id >= vocab_size) {
            fields.fail(name, "`" + where + "[" + std::to_string(i) + "]` must be a token id from 0 to " +
                                  std::to_string(vocab_size - 1) + ", got " + describe(list[i]) + ".");
            return ids;
        }
        ids.push_back(static_cast<TokenId>(*id));
    }
    return ids;
}

std::vector<Prompt> decode_prompts(FieldReader& fields, const DecodeContext& context, bool add_special_tokens) {
    return PromptDecoder(fields, context, add_special_tokens).decode();
}

ChatPrompt decode_chat_prompt(FieldReader& fields, const DecodeContext& context) {
    ChatPrompt chat;
    if (!context.info.has_tokenizer) fields.fail("messages", "The model has no tokenizer: use /v1/completions.");
    const auto* messages = fields.array("messages", static_cast<std::size_t>(context.limits.messages));
    if (messages == nullptr || messages->empty()) {
        fields.fail("messages", "`messages` must hold at least one message.");
    } else {
        json::array normal;
        for (std::size_t i = 0; i < messages->size() && fields.ok(); ++i)
            normal.emplace_back(normalise_message(fields, (*messages)[i], "messages[" + std::to_string(i) + "]",
                                                  context.limits.json_depth));
        chat.messages_json = to_json(std::move(normal));
    }
    chat.tools_json = decode_list(fields, "tools", kTools);
    chat.documents_json = decode_list(fields, "documents", kDocuments);
    if (const auto* kwargs = fields.object("chat_template_kwargs"); kwargs != nullptr && !kwargs->empty())
        chat.template_kwargs_json = to_json(*fields.find("chat_template_kwargs"));
    chat.continue_final_message = fields.boolean("continue_final_message").value_or(false);
    // vLLM's default for the one is the other's opposite only when said so; both at once contradict each other.
    const auto add = fields.boolean("add_generation_prompt");
    if (add.value_or(false) && chat.continue_final_message)
        fields.fail("add_generation_prompt",
                    "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
    chat.add_generation_prompt = add.value_or(!chat.continue_final_message);
    return chat;
}

}  // namespace attune
