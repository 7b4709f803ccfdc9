#include "net/decode_request.hpp"

#include "net/decode_prompt.hpp"
#include "net/decode_sampling.hpp"
#include "net/field_reader.hpp"

#include <boost/json/array.hpp>
#include <cmath>
#include <limits>
#include <set>

namespace attune {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxMilliseconds = 24ll * 3600 * 1000;
constexpr std::size_t kNameBytes = 512;  // 128 characters of any script
constexpr std::size_t kTagBytes = 256;
constexpr std::size_t kTags = 64;
constexpr double kMaxWeight = 100;

std::string text_of(const json::string& text) { return {text.data(), text.size()}; }

std::vector<WeightedModule> decode_modules(FieldReader& attune, const LimitSettings& limits) {
    std::vector<WeightedModule> modules;
    const auto* list = attune.array("modules", static_cast<std::size_t>(limits.modules));
    if (list == nullptr) return modules;
    std::set<std::string> names;
    for (const auto& item : *list) {
        const auto* object = item.if_object();
        if (object == nullptr) {
            attune.fail("modules",
                        "`attune.modules` must hold objects with `name` and `weight`, got " + describe(item) + ".");
            return modules;
        }
        FieldReader fields(*object, "attune.modules.");
        WeightedModule module;
        module.name = fields.string("name", kNameBytes).value_or("");
        module.weight = fields.number("weight", -kMaxWeight, kMaxWeight).value_or(1);
        if (fields.ok() && module.name.empty()) fields.fail("name", "`attune.modules` entries need a `name`.");
        if (fields.ok() && !names.insert(module.name).second)
            fields.fail("name", "`attune.modules` names `" + module.name + "` twice.");
        if (!fields.ok()) attune.fail("modules", fields.error().message);
        modules.push_back(std::move(module));
    }
    return modules;
}

template <class Value>
std::optional<Value> one_of(FieldReader& fields, std::string_view name,
                            std::initializer_list<std::pair<std::string_view, Value>> words) {
    const auto* value = fields.find(name);
    if (value == nullptr) return std::nullopt;
    std::string allowed;
    for (const auto& [word, meaning] : words) {
        if (value->is_string() && value->get_string() == json::string_view(word.data(), word.size())) return meaning;
        allowed += (allowed.empty() ? "" : ", ") + std::string(word);
    }
    fields.fail(name, "`" + fields.path(name) + "` must be one of " + allowed + ", got " + describe(*value) + ".");
    return std::nullopt;
}

std::vector<std::string> decode_tags(FieldReader& attune) {
    std::vector<std::string> tags;
    const auto* list = attune.array("tags", kTags);
    if (list == nullptr) return tags;
    for (const auto& item : *list) {
        const auto* tag = item.if_string();
        if (tag == nullptr || tag->empty() || tag->size() > kTagBytes)
            attune.fail("tags", "`" + attune.path("tags") + "` must hold strings of 1 to 256 bytes, got " +
                                    describe(item) + ".");
        else
            tags.push_back(text_of(*tag));
    }
    return tags;
}

// The fields under `attune`; their unknown names join those of the body.
void decode_attune(FieldReader& body, const DecodeContext& context, GenerationRequest& request, std::string& unknown) {
    const auto* object = body.object("attune");
    if (object == nullptr) return;
    FieldReader attune(*object, "attune.");
    request.modules = decode_modules(attune, context.limits);
    request.combine = one_of<Combine>(
        attune, "combine",
        {{"sequence", Combine::sequence}, {"parallel", Combine::parallel}, {"interpolate", Combine::interpolate}});
    request.cold = one_of<ColdPolicy>(attune, "cold",
                                      {{"wait", ColdPolicy::wait},
                                       {"fallback", ColdPolicy::fallback},
                                       {"upgrade", ColdPolicy::upgrade},
                                       {"revise", ColdPolicy::revise}});
    request.timeout_ms = attune.integer("timeout_ms", 0, kMaxMilliseconds);
    request.task_id = attune.string("task_id", kTagBytes).value_or("");
    request.tags = decode_tags(attune);
    if (const auto priority = attune.integer("priority", -100, 100)) request.priority = static_cast<int>(*priority);
    request.deadline_ms = attune.integer("deadline_ms", 1, kMaxMilliseconds);
    if (!attune.ok()) body.fail("attune", attune.error().message);
    const bool model_is_module = request.model != context.info.base_id && request.model != "auto";
    const bool same = request.modules.size() == 1 && request.modules[0].name == request.model;
    if (!request.modules.empty() && model_is_module && !same)
        body.fail("attune.modules", "`model` names `" + request.model +
                                        "` and `attune.modules` something else: name the modules in one place.");
    unknown = attune.unknown_fields();
}

void refuse_what_is_not_offered(FieldReader& fields) {
    for (const auto name : {"suffix", "truncate_prompt_tokens", "guided_json", "guided_regex", "guided_choice",
                            "guided_grammar", "structured_outputs", "prompt_embeds", "audio", "chat_template"}) {
        const auto* value = fields.find(name);
        const bool empty = value == nullptr || (value->is_string() && value->get_string().empty());
        if (!empty) fields.fail(name, "`" + std::string(name) + "` is not offered.", Errc::unsupported);
    }
    if (fields.boolean("use_beam_search").value_or(false))
        fields.fail("use_beam_search", "`use_beam_search` is not offered.", Errc::unsupported);
}

void check_response_format(FieldReader& fields) {
    const auto* object = fields.object("response_format");
    if (object == nullptr) return;
    FieldReader format(*object, "response_format.");
    const std::string type = format.string("type", 64).value_or("");
    if (type == "text") return;
    if (type == "json_schema") {
        const auto* schema = format.object("json_schema");
        FieldReader inner(schema == nullptr ? *object : *schema, "response_format.json_schema.");
        if (schema == nullptr || inner.object("schema") == nullptr)
            fields.fail("response_format",
                        "`response_format` of type json_schema needs `json_schema.schema`, an object.");
    }
    if (type == "json_schema" || type == "json_object")
        fields.fail("response_format", "`response_format` of type " + type + " is not offered.", Errc::unsupported);
    fields.fail("response_format", "`response_format.type` must be text, json_object or json_schema.");
}

void decode_stream_options(FieldReader& fields, const DecodeContext& context, ApiRequest& request) {
    request.stream = fields.boolean("stream").value_or(false) || context.always_stream;
    const auto* object = fields.object("stream_options");
    if (object == nullptr) return;
    if (!request.stream) {
        fields.fail("stream_options", "Stream options can only be defined when `stream=True`.");
        return;
    }
    FieldReader options(*object, "stream_options.");
    request.include_usage = options.boolean("include_usage").value_or(false);
    request.continuous_usage_stats = options.boolean("continuous_usage_stats").value_or(false);
    if (!options.ok()) fields.fail("stream_options", options.error().message);
}

// Everything both endpoints share. The result is the request without its prompt.
GenerationRequest decode_common(FieldReader& fields, const DecodeContext& context, ApiRequest& request,
                                std::string& unknown) {
    GenerationRequest generation;
    request.model = fields.string("model", kNameBytes).value_or("");
    if (fields.ok() && request.model.empty())
        fields.fail("model", "`model` is required: `" + context.info.base_id + "`, a module's name, or `auto`.");
    generation.model = request.model;
    decode_stream_options(fields, context, request);
    generation.streamed = request.stream;
    generation.sampling = decode_sampling(fields, context);
    // vLLM's, where lower is earlier; `attune.priority`, where higher is, counts when both are there.
    generation.priority = -static_cast<int>(fields.integer("priority", -kMaxInt, kMaxInt).value_or(0));
    decode_attune(fields, context, generation, unknown);
    generation.user = fields.string("user", kTagBytes).value_or("");
    if (const auto salt = fields.string("cache_salt", kTagBytes)) {
        if (salt->empty()) fields.fail("cache_salt", "`cache_salt` must not be empty.");
        generation.cache_salt = *salt;
    }
    refuse_what_is_not_offered(fields);
    check_response_format(fields);
    request.choices_per_prompt = generation.sampling.n;
    return generation;
}

void check_lengths(FieldReader& fields, const ApiRequest& request, const SamplingParams& sampling) {
    if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens)
        fields.fail("min_tokens", "`min_tokens` (" + std::to_string(sampling.min_tokens) +
                                      ") must not be above `max_tokens` (" + std::to_string(*sampling.max_tokens) +
                                      ").");
    if (request.stream && sampling.prompt_logprobs)
        fields.fail("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.");
}

Result<ApiRequest> finish(FieldReader& fields, ApiRequest request, GenerationRequest generation,
                          std::vector<Prompt> prompts, const std::string& unknown) {
    check_lengths(fields, request, generation.sampling);
    if (!fields.ok()) return fields.error();
    request.prompt_logprobs = generation.sampling.prompt_logprobs.has_value();
    request.echo = generation.sampling.echo;
    for (auto& prompt : prompts) {
        request.prompts.push_back(generation);
        request.prompts.back().prompt = std::move(prompt);
    }
    request.unknown_fields = fields.unknown_fields();
    if (!unknown.empty())
        request.unknown_fields += (request.unknown_fields.empty() ? "attune: " : ", attune: ") + unknown;
    return request;
}

}  // namespace

Result<GenerationRequest> decode_route_trial(const json::object& body, const DecodeContext& context) {
    FieldReader fields(body);
    GenerationRequest request;
    request.model = fields.string("model", kNameBytes).value_or("auto");
    std::string unknown;
    decode_attune(fields, context, request, unknown);
    request.user = fields.string("user", kTagBytes).value_or("");
    // As under `attune`, or beside the text.
    if (const auto task_id = fields.string("task_id", kTagBytes)) request.task_id = *task_id;
    if (fields.find("tags") != nullptr) request.tags = decode_tags(fields);
    int texts = 0;
    for (const char* name : {"messages", "prompt", "text"}) texts += fields.find(name) != nullptr;
    if (texts > 1) fields.fail("text", "Of `messages`, `prompt` and `text` one is enough.");
    if (fields.find("messages") != nullptr) {
        request.prompt = decode_chat_prompt(fields, context);
    } else if (fields.find("prompt") != nullptr) {
        auto prompts = decode_prompts(fields, context, true);
        if (prompts.size() > 1) fields.fail("prompt", "`prompt` must be one prompt: each is routed by itself.");
        if (!prompts.empty()) request.prompt = std::move(prompts.front());
    } else {
        request.prompt = TextPrompt{fields.string("text", std::string::npos).value_or(""), true};
    }
    if (!fields.ok()) return fields.error();
    return request;
}

Result<ApiRequest> decode_completion(const json::object& body, const DecodeContext& context) {
    constexpr int kDefaultMaxTokens = 16;
    FieldReader fields(body);
    ApiRequest request;
    request.endpoint = Endpoint::completions;
    std::string unknown;
    GenerationRequest generation = decode_common(fields, context, request, unknown);
    SamplingParams& sampling = generation.sampling;
    sampling.echo = fields.boolean("echo").value_or(false);
    // Only an echoed prompt makes an answer without a token worth asking for.
    sampling.max_tokens =
        static_cast<int>(fields.integer("max_tokens", sampling.echo ? 0 : 1, kMaxInt).value_or(kDefaultMaxTokens));
    if (const auto count = fields.integer("logprobs", 0, context.limits.logprobs)) {
        sampling.logprobs = static_cast<int>(*count);
        request.logprobs = true;
    }
    const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
    std::vector<Prompt> prompts = decode_prompts(fields, context, add_special_tokens);
    return finish(fields, std::move(request), std::move(generation), std::move(prompts), unknown);
}

Result<ApiRequest> decode_chat(const json::object& body, const DecodeContext& context) {
    FieldReader fields(body);
    ApiRequest request;
    request.endpoint = Endpoint::chat;
    std::string unknown;
    GenerationRequest generation = decode_common(fields, context, request, unknown);
    SamplingParams& sampling = generation.sampling;
    const auto old_name = fields.integer("max_tokens", 1, kMaxInt);
    const auto new_name = fields.integer("max_completion_tokens", 1, kMaxInt);
    if (const auto& limit = new_name ? new_name : old_name) sampling.max_tokens = static_cast<int>(*limit);
    request.logprobs = fields.boolean("logprobs").value_or(false);
    const auto top = fields.integer("top_logprobs", 0, context.limits.logprobs);
    if (top && *top > 0 && !request.logprobs)
        fields.fail("top_logprobs", "When using `top_logprobs`, `logprobs` must be set to true.");
    if (request.logprobs) sampling.logprobs = static_cast<int>(top.value_or(0));
    if (fields.boolean("echo").value_or(false))
        fields.fail("echo", "`echo` is not offered for chat.", Errc::unsupported);
    std::vector<Prompt> prompts;
    prompts.emplace_back(decode_chat_prompt(fields, context));
    return finish(fields, std::move(request), std::move(generation), std::move(prompts), unknown);
}

}  // namespace attune
