#include "net/decode_admin.hpp"

#include "net/decode_prompt.hpp"
#include "net/field_reader.hpp"

#include <boost/json/array.hpp>

namespace attune {
namespace {

namespace json = boost::json;

constexpr std::size_t kNameBytes = 512;
constexpr std::size_t kPathBytes = 4096;

std::string model_or_base(FieldReader& fields, const DecodeContext& context) {
    return fields.string("model", kNameBytes).value_or(context.info.base_id);
}

}  // namespace

Result<LoadModuleRequest> decode_load_adapter(const json::object& body) {
    FieldReader fields(body);
    LoadModuleRequest request;
    request.name = fields.string("lora_name", kNameBytes).value_or("");
    request.path = fields.string("lora_path", kPathBytes).value_or("");
    request.load_inplace = fields.boolean("load_inplace").value_or(false);
    request.expected_generation = fields.string("expected_generation", 64);
    if (!fields.ok()) return fields.error();
    if (request.name.empty() || request.path.empty())
        return make_error(Errc::invalid_argument, "Both 'lora_name' and 'lora_path' must be provided.");
    return request;
}

Result<std::string> decode_unload_adapter(const json::object& body) {
    FieldReader fields(body);
    std::string name = fields.string("lora_name", kNameBytes).value_or("");
    if (!fields.ok()) return fields.error();
    if (name.empty())
        return make_error(Errc::invalid_argument, "'lora_name' needs to be provided to unload a LoRA adapter.");
    return name;
}

Result<TokenizeRequest> decode_tokenize(const json::object& body, const DecodeContext& context) {
    FieldReader fields(body);
    TokenizeRequest request;
    request.model = model_or_base(fields, context);
    const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
    request.token_texts = fields.boolean("return_token_strs").value_or(false);
    for (const char* name : {"chat_template", "mm_processor_kwargs"})
        if (fields.find(name) != nullptr)
            fields.fail(name, "`" + std::string(name) + "` is not offered.", Errc::unsupported);
    if (fields.find("messages") != nullptr) {
        request.prompt = decode_chat_prompt(fields, context);
    } else {
        const std::string text = fields.string("prompt", std::string::npos).value_or("");
        if (fields.ok() && text.empty()) fields.fail("prompt", "`prompt` or `messages` is required.");
        if (!context.info.has_tokenizer) fields.fail("prompt", "The model has no tokenizer.");
        request.prompt = TextPrompt{text, add_special_tokens};
    }
    if (!fields.ok()) return fields.error();
    return request;
}

Result<DetokenizeBody> decode_detokenize(const json::object& body, const DecodeContext& context) {
    FieldReader fields(body);
    DetokenizeBody request;
    request.model = model_or_base(fields, context);
    const auto* tokens = fields.array("tokens", std::string::npos);
    if (tokens == nullptr)
        fields.fail("tokens", "`tokens` is required: a list of token ids.");
    else
        request.tokens = decode_ids(fields, "tokens", *tokens, context.info.vocab_size, "tokens");
    if (!context.info.has_tokenizer) fields.fail("tokens", "The model has no tokenizer.");
    if (!fields.ok()) return fields.error();
    return request;
}

}  // namespace attune
