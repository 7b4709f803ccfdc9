#include "net/decode_request.hpp"

#include "net/decode_admin.hpp"
#include "net/json_text.hpp"
#include "net/net_fixture.hpp"

namespace attune {
namespace {

const ServerInfo kInfo{"base-model", 2048, 1000, 0, true, true};
const LimitSettings kLimits;

boost::json::object object_of(const std::string& text) {
    auto value = parse_json(text, 64);
    REQUIRE(value);
    return value->as_object();
}

Result<ApiRequest> completion(const std::string& fields) {
    return decode_completion(object_of(R"({"model":"base-model","prompt":"hi")" + fields + "}"), {kInfo, kLimits});
}

Result<ApiRequest> chat(const std::string& fields,
                        const std::string& messages = R"([{"role":"user","content":"hi"}])") {
    return decode_chat(object_of(R"({"model":"base-model","messages":)" + messages + fields + "}"), {kInfo, kLimits});
}

Result<ApiRequest> prompt(const std::string& json) {
    return decode_completion(object_of(R"({"model":"base-model","prompt":)" + json + "}"), {kInfo, kLimits});
}

// "" when the request is good, else "param: message".
std::string fault(const Result<ApiRequest>& request) {
    if (request) return {};
    const auto& error = request.error();
    CHECK((error.code == Errc::invalid_argument || error.code == Errc::unsupported));
    return error.param + ": " + error.message;
}

TEST_CASE("absent fields have vLLM's defaults", "[net][decode]") {
    const auto request = completion("");
    REQUIRE(request);
    REQUIRE(request->prompts.size() == 1);
    const auto& sampling = request->prompts[0].sampling;
    CHECK(sampling.max_tokens == 16);
    CHECK(sampling.temperature == 1.0);
    CHECK(sampling.top_p == 1.0);
    CHECK(sampling.n == 1);
    CHECK_FALSE(sampling.seed);
    CHECK_FALSE(sampling.logprobs);
    CHECK_FALSE(request->stream);
    CHECK(std::get<TextPrompt>(request->prompts[0].prompt).text == "hi");
    CHECK(std::get<TextPrompt>(request->prompts[0].prompt).add_special_tokens);
    const auto talk = chat("");
    REQUIRE(talk);
    CHECK_FALSE(talk->prompts[0].sampling.max_tokens);  // to the context's end
}

TEST_CASE("all sampling fields reach the request", "[net][decode]") {
    const auto request = completion(
        R"(,"temperature":0,"top_p":0.5,"top_k":7,"min_p":0.1,"repetition_penalty":1.2,"presence_penalty":-1,
            "frequency_penalty":2,"logit_bias":{"5":-100,"999":1.5},"seed":42,"n":3,"stop":["a","bb"],
            "stop_token_ids":[1,2],"include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false,
            "min_tokens":2,"max_tokens":9,"logprobs":4,"prompt_logprobs":2,"echo":true,"user":"u","cache_salt":"s",
            "add_special_tokens":false)");
    REQUIRE(request);
    const auto& generation = request->prompts[0];
    const auto& sampling = generation.sampling;
    CHECK(sampling.temperature == 0);
    CHECK(sampling.top_p == 0.5);
    CHECK(sampling.top_k == 7);
    CHECK(sampling.min_p == 0.1);
    CHECK(sampling.repetition_penalty == 1.2);
    CHECK(sampling.presence_penalty == -1);
    CHECK(sampling.frequency_penalty == 2);
    CHECK(sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{5, -100.f}, {999, 1.5f}});
    CHECK(sampling.seed == 42u);
    CHECK(sampling.n == 3);
    CHECK(sampling.stop == std::vector<std::string>{"a", "bb"});
    CHECK(sampling.stop_token_ids == std::vector<TokenId>{1, 2});
    CHECK(sampling.include_stop_str_in_output);
    CHECK(sampling.ignore_eos);
    CHECK_FALSE(sampling.skip_special_tokens);
    CHECK(sampling.min_tokens == 2);
    CHECK(sampling.max_tokens == 9);
    CHECK(sampling.logprobs == 4);
    CHECK(sampling.prompt_logprobs == 2);
    CHECK(sampling.echo);
    CHECK(generation.user == "u");
    CHECK(generation.cache_salt == "s");
    CHECK_FALSE(std::get<TextPrompt>(generation.prompt).add_special_tokens);
    CHECK(request->unknown_fields.empty());
}

TEST_CASE("every integer field has a range and takes nothing but integers", "[net][decode]") {
    const std::vector<std::string> fields{"n",        "best_of", "max_tokens",      "min_tokens",
                                          "logprobs", "seed",    "prompt_logprobs", "top_k"};
    const std::vector<std::string> bad{
        "-9223372036854775808", "9223372036854775808", "1e400", "1.5", "\"5\"", "true", "[]", "{}"};
    for (const auto& field : fields) {
        for (const auto& value : bad) {
            INFO(field << " = " << value);
            CHECK_THAT(fault(completion(",\"" + field + "\":" + value)),
                       Catch::StartsWith(field + ": ") && Catch::Contains("`" + field + "`"));
        }
        INFO(field << " = null");
        CHECK(fault(completion(",\"" + field + "\":null")).empty());
        if (field == "top_k") continue;  // -1 is vLLM's "all"
        INFO(field << " = -1");
        CHECK_FALSE(fault(completion(",\"" + field + "\":-1")).empty());
    }
    for (const std::string field : {"max_tokens", "max_completion_tokens", "top_logprobs"})
        for (const auto& value : bad) CHECK_FALSE(fault(chat(",\"logprobs\":true,\"" + field + "\":" + value)).empty());
    CHECK_FALSE(fault(completion(R"(,"attune":{"timeout_ms":-1})")).empty());
    CHECK_FALSE(fault(completion(R"(,"attune":{"priority":101})")).empty());
    CHECK_FALSE(fault(completion(R"(,"attune":{"deadline_ms":0})")).empty());
    CHECK_FALSE(fault(completion(R"(,"max_tokens":0)")).empty());
    CHECK(fault(completion(R"(,"max_tokens":0,"echo":true)")).empty());
    CHECK_FALSE(fault(completion(R"(,"min_tokens":17)")).empty());
}

TEST_CASE("numbers outside their ranges and flags of other types are refused", "[net][decode]") {
    for (const std::string field :
         {R"("temperature":-0.1)", R"("temperature":1e400)", R"("temperature":"1")", R"("top_p":0)", R"("top_p":1.1)",
          R"("min_p":2)", R"("presence_penalty":-2.5)", R"("frequency_penalty":3)", R"("repetition_penalty":0)",
          R"("stream":1)", R"("echo":"yes")", R"("ignore_eos":0)", R"("user":5)", R"("cache_salt":"")"}) {
        INFO(field);
        CHECK_FALSE(fault(completion("," + field)).empty());
    }
}

TEST_CASE("counts that multiply work are limited", "[net][decode]") {
    CHECK_THAT(fault(completion(R"(,"n":1000000)")), Catch::Contains("from 1 to 16"));
    CHECK_FALSE(fault(completion(R"(,"best_of":1000000000)")).empty());
    CHECK_FALSE(fault(completion(R"(,"n":1,"best_of":2)")).empty());
    CHECK(fault(completion(R"(,"n":2,"best_of":2)")).empty());
    CHECK_FALSE(fault(completion(R"(,"logprobs":21)")).empty());
    CHECK_FALSE(fault(chat(R"(,"logprobs":true,"top_logprobs":21)")).empty());
    std::string stops = "\"s\"";
    for (int i = 0; i < 100'000; ++i) stops += ",\"s\"";
    CHECK_THAT(fault(completion(",\"stop\":[" + stops + "]")), Catch::Contains("at most 16"));
    CHECK_FALSE(fault(completion(",\"stop\":\"" + std::string(257, 'x') + "\"")).empty());
    CHECK_FALSE(fault(completion(R"(,"stop":"")")).empty());
    CHECK_FALSE(fault(completion(R"(,"stop":["a",3])")).empty());
    CHECK_FALSE(fault(completion(R"(,"stop":3)")).empty());
    std::string prompts = "\"p\"";
    for (int i = 0; i < 64; ++i) prompts += ",\"p\"";
    CHECK_THAT(fault(prompt("[" + prompts + "]")), Catch::Contains("at most 64"));
    std::string messages = R"({"role":"user","content":"x"})";
    for (int i = 0; i < 1024; ++i) messages += R"(,{"role":"user","content":"x"})";
    CHECK_THAT(fault(chat("", "[" + messages + "]")), Catch::Contains("at most 1024"));
}

TEST_CASE("logit_bias keys are ids of the vocabulary and values within 100", "[net][decode]") {
    for (const std::string key : {"-1", "1000", "1001", "abc", "1e3", "", "1 ", "+1", "99999999999999999999"})
        CHECK_THAT(fault(completion(",\"logit_bias\":{\"" + key + "\":1}")), Catch::StartsWith("logit_bias: "));
    for (const std::string value : {"\"NaN\"", "101", "-100.5", "1e400", "null"})
        CHECK_FALSE(fault(completion(",\"logit_bias\":{\"1\":" + value + "}")).empty());
    std::string many = "\"1\":1";
    for (int i = 2; i < 3000; ++i) many += ",\"x" + std::to_string(i) + "\":1";
    CHECK_THAT(fault(completion(",\"logit_bias\":{" + many + "}")), Catch::Contains("at most 1024"));
}

TEST_CASE("token ids out of range are refused by index", "[net][decode]") {
    CHECK_THAT(fault(prompt("[200000]")), Catch::Contains("`prompt[0]`"));
    CHECK_THAT(fault(prompt("[1,2,-1]")), Catch::Contains("`prompt[2]`"));
    CHECK_THAT(fault(prompt("[1.5]")), Catch::Contains("`prompt[0]`") && Catch::Contains("1.5"));
    CHECK_THAT(fault(prompt("[true]")), Catch::Contains("`prompt[0]`"));
    CHECK_THAT(fault(prompt("[[1],[999999]]")), Catch::Contains("`prompt[1][0]`"));
    CHECK_THAT(fault(prompt("[1,\"a\"]")), Catch::Contains("`prompt[1]`"));
    CHECK_THAT(fault(prompt("[\"a\",[1]]")), Catch::Contains("`prompt[1]`"));
    CHECK_FALSE(fault(completion(R"(,"stop_token_ids":[1000])")).empty());
}

TEST_CASE("an empty prompt in any form is refused", "[net][decode]") {
    for (const std::string empty : {R"("")", "[]", "[[]]", R"([""])", R"(["a",""])", "[[1],[]]", "{}", "3", "null"})
        CHECK_THAT(fault(prompt(empty)), Catch::StartsWith("prompt: "));
    CHECK_FALSE(fault(chat("", "[]")).empty());
    CHECK_FALSE(fault(chat("", "null")).empty());
}

TEST_CASE("several prompts become several requests with one set of parameters", "[net][decode]") {
    const auto texts = prompt(R"(["a","b"])");
    REQUIRE(texts);
    REQUIRE(texts->prompts.size() == 2);
    CHECK(std::get<TextPrompt>(texts->prompts[1].prompt).text == "b");
    const auto ids = prompt("[[1,2],[3]]");
    REQUIRE(ids);
    CHECK(std::get<TokenPrompt>(ids->prompts[0].prompt).ids == std::vector<TokenId>{1, 2});
    const auto one = prompt("[1,2]");
    REQUIRE(one);
    CHECK(one->prompts.size() == 1);
}

TEST_CASE("messages: text parts are passed on as they are, other parts and shapes refused", "[net][decode]") {
    const auto request =
        chat("", R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                                      {"role":"user","content":"c","name":"n"}])");
    REQUIRE(request);
    CHECK(
        std::get<ChatPrompt>(request->prompts[0].prompt).messages_json ==
        R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user","content":"c","name":"n"}])");
    const auto loose = chat("", R"([{"role":"user","content":["a",{"type":"text","text":"b","cache_control":{}}]},
                                     {"role":"user","content":[]}])");
    REQUIRE(loose);
    CHECK(
        std::get<ChatPrompt>(loose->prompts[0].prompt).messages_json ==
        R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{}}]},{"role":"user","content":""}])");
    CHECK_THAT(
        fault(chat(
            "", R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}])")),
        Catch::Contains("messages[0].content[0]") && Catch::Contains("image_url") && Catch::Contains("text only"));
    CHECK_THAT(fault(chat("", R"([{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"x"},
                                  {"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}])")),
               Catch::Contains("messages[1].content[1]") && Catch::Contains("input_audio"));
    CHECK_FALSE(fault(chat("", R"([{"content":"x"}])")).empty());
    CHECK_FALSE(fault(chat("", R"([{"role":3,"content":"x"}])")).empty());
    CHECK_FALSE(fault(chat("", R"([{"role":"user"}])")).empty());
    CHECK_FALSE(fault(chat("", R"([{"role":"user","content":5}])")).empty());
    CHECK_FALSE(fault(chat("", R"(["hi"])")).empty());
    CHECK_FALSE(fault(chat("", R"("hi")")).empty());
    CHECK(fault(chat("", R"([{"role":"assistant","content":null,"tool_calls":[]}])")).empty());
}

TEST_CASE("the arguments of tool calls become the objects that their text stands for", "[net][decode]") {
    const auto with = [](const std::string& arguments) {
        return chat("", R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
                            "function":{"name":"f","arguments":)" +
                            arguments + "}}]}]");
    };
    const auto given = [&](const std::string& arguments) {
        const auto request = with(arguments);
        if (!request) return request.error().message;
        const std::string text = std::get<ChatPrompt>(request->prompts[0].prompt).messages_json;
        const std::size_t at = text.find("\"arguments\":") + 12;
        return text.substr(at, text.size() - at - 5);
    };
    CHECK(given(R"("{\"a\": [1, 2.0], \"é\": null}")") == R"({"a":[1,2.0],"é":null})");
    CHECK(given(R"({"a":1})") == R"({"a":1})");
    CHECK(std::get<ChatPrompt>(with("{}")->prompts[0].prompt).messages_json.find(R"("content":"","tool_calls")") !=
          std::string::npos);
    CHECK(given(R"("")") == "{}");
    const std::string fault_text = "`messages[0].tool_calls[0].function.arguments` must be the text of a JSON object.";
    CHECK(given(R"("{\"a\":")") == fault_text);
    CHECK(given(R"("[1]")") == fault_text);
    CHECK(given(R"("null")") == fault_text);
    CHECK(given("\"" + std::string(500, '[') + "\"") == fault_text);
    CHECK(fault(chat("", R"([{"role":"assistant","tool_calls":{}}])")).find("`messages[0].tool_calls`") !=
          std::string::npos);
    CHECK(fault(chat("", R"([{"role":"assistant","tool_calls":[1]}])")).find("`messages[0].tool_calls[0]`") !=
          std::string::npos);
    CHECK(fault(chat("", R"([{"role":"assistant","tool_calls":[{"type":"custom","custom":{"name":"f"}}]}])")).empty());
}

TEST_CASE("what the chat template is given", "[net][decode]") {
    const auto request = chat(
        R"(,"tools":[{"type":"function"}],"documents":[{"t":1}],"chat_template_kwargs":{"thinking":true},"max_tokens":3,"max_completion_tokens":4)");
    REQUIRE(request);
    const auto& prompt = std::get<ChatPrompt>(request->prompts[0].prompt);
    CHECK(prompt.tools_json == R"([{"type":"function"}])");
    CHECK(prompt.documents_json == R"([{"t":1}])");
    CHECK(prompt.template_kwargs_json == R"({"thinking":true})");
    CHECK(prompt.add_generation_prompt);
    CHECK(request->prompts[0].sampling.max_tokens == 4);
    const auto continued = chat(R"(,"continue_final_message":true)");
    REQUIRE(continued);
    CHECK_FALSE(std::get<ChatPrompt>(continued->prompts[0].prompt).add_generation_prompt);
    CHECK_FALSE(fault(chat(R"(,"continue_final_message":true,"add_generation_prompt":true)")).empty());
    CHECK_FALSE(fault(chat(R"(,"tools":"x")")).empty());
    CHECK_FALSE(fault(chat(R"(,"tools":[1])")).empty());
    CHECK_FALSE(fault(chat(R"(,"chat_template_kwargs":[])")).empty());
}

TEST_CASE("what would change the answer and is not offered is refused by name", "[net][decode]") {
    CHECK_THAT(fault(chat(R"(,"response_format":{"type":"json_schema"})")), Catch::Contains("schema"));
    CHECK_THAT(fault(chat(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":3}})")),
               Catch::StartsWith("response_format: "));
    CHECK_THAT(fault(chat(R"(,"response_format":{"type":"nope"})")), Catch::StartsWith("response_format: "));
    CHECK_THAT(fault(chat(R"(,"response_format":"text")")), Catch::StartsWith("response_format: "));
    CHECK(chat(R"(,"response_format":{"type":"json_object"})").error().code == Errc::unsupported);
    CHECK(chat(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}})").error().code ==
          Errc::unsupported);
    CHECK(fault(chat(R"(,"response_format":{"type":"text"})")).empty());
    CHECK(chat(R"(,"chat_template":"{{x}}")").error().code == Errc::unsupported);
    CHECK(completion(R"(,"suffix":"x")").error().code == Errc::unsupported);
    CHECK(completion(R"(,"use_beam_search":true)").error().code == Errc::unsupported);
    CHECK(fault(completion(R"(,"suffix":"","use_beam_search":false)")).empty());
}

TEST_CASE("unknown fields are accepted and named for the log", "[net][decode]") {
    const auto request = chat(R"(,"tool_choice":"auto","x\ny":1,"attune":{"colour":1})");
    REQUIRE(request);
    CHECK(request->unknown_fields == R"("tool_choice", "x\ny", attune: "colour")");
}

TEST_CASE("stream options need a stream", "[net][decode]") {
    const auto refused = completion(R"(,"stream_options":{"include_usage":true})");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "Stream options can only be defined when `stream=True`.");
    CHECK(refused.error().param == "stream_options");
    const auto request =
        completion(R"(,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
    REQUIRE(request);
    CHECK(request->include_usage);
    CHECK(request->continuous_usage_stats);
    CHECK(request->prompts[0].streamed);
    CHECK_FALSE(fault(completion(R"(,"stream":true,"stream_options":{"include_usage":1})")).empty());
    CHECK_FALSE(fault(completion(R"(,"stream":true,"prompt_logprobs":1)")).empty());
    CHECK_FALSE(fault(chat(R"(,"top_logprobs":3)")).empty());
}

TEST_CASE("vLLM's priority is ours the other way round, and ours counts where both are", "[net][decode]") {
    CHECK(completion("")->prompts[0].priority == 0);
    CHECK(completion(R"(,"priority":7)")->prompts[0].priority == -7);
    CHECK(completion(R"(,"priority":-7)")->prompts[0].priority == 7);
    CHECK(completion(R"(,"priority":7,"attune":{"priority":3})")->prompts[0].priority == 3);
    CHECK(completion(R"(,"priority":7,"attune":{})")->prompts[0].priority == -7);
    CHECK(completion(R"(,"priority":7)")->unknown_fields.empty());
    for (const char* bad : {"1.5", "\"1\"", "true", "9223372036854775808", "-2147483648"})
        CHECK(fault(completion(",\"priority\":" + std::string(bad))).find("priority") != std::string::npos);
}

TEST_CASE("our own fields travel under attune", "[net][decode]") {
    const auto request = completion(
        R"(,"attune":{"modules":[{"name":"code"},{"name":"法条","weight":-0.5}],"combine":"parallel","cold":"wait",
            "timeout_ms":2000,"task_id":"t","tags":["a","b"],"priority":-3,"deadline_ms":500})");
    REQUIRE(request);
    const auto& generation = request->prompts[0];
    REQUIRE(generation.modules.size() == 2);
    CHECK(generation.modules[0].weight == 1);
    CHECK(generation.modules[1].name == "法条");
    CHECK(generation.modules[1].weight == -0.5);
    CHECK(generation.combine == Combine::parallel);
    CHECK(generation.cold == ColdPolicy::wait);
    CHECK(generation.timeout_ms == 2000);
    CHECK(generation.task_id == "t");
    CHECK(generation.tags == std::vector<std::string>{"a", "b"});
    CHECK(generation.priority == -3);
    CHECK(generation.deadline_ms == 500);
    for (const std::string bad :
         {R"({"modules":["code"]})", R"({"modules":[{}]})", R"({"modules":[{"name":"a","weight":101}]})",
          R"({"modules":[{"name":"a"},{"name":"a"}]})", R"({"cold":"hot"})", R"({"combine":1})", R"({"tags":[""]})",
          R"([])"})
        CHECK_FALSE(fault(completion(",\"attune\":" + bad)).empty());
    std::string nine = R"({"name":"m0"})";
    for (int i = 1; i < 9; ++i) nine += ",{\"name\":\"m" + std::to_string(i) + "\"}";
    CHECK_FALSE(fault(completion(",\"attune\":{\"modules\":[" + nine + "]}")).empty());
}

TEST_CASE("a module is named in one place", "[net][decode]") {
    const auto both = [](const std::string& model) {
        return fault(decode_completion(
            object_of(R"({"prompt":"x","model":")" + model + R"(","attune":{"modules":[{"name":"code"}]}})"),
            {kInfo, kLimits}));
    };
    CHECK(both("base-model").empty());
    CHECK(both("auto").empty());
    CHECK(both("code").empty());
    CHECK_FALSE(both("legal").empty());
}

TEST_CASE("model is required and may not be empty", "[net][decode]") {
    for (const std::string body : {R"({"prompt":"x"})", R"({"prompt":"x","model":""})",
                                   R"({"prompt":"x","model":null})", R"({"prompt":"x","model":7})"}) {
        const auto request = decode_completion(object_of(body), {kInfo, kLimits});
        REQUIRE_FALSE(request);
        CHECK(request.error().param == "model");
    }
}

TEST_CASE("a model without tokenizer takes token ids only", "[net][decode]") {
    ServerInfo info = kInfo;
    info.has_tokenizer = false;
    info.has_chat_template = false;
    CHECK_FALSE(fault(decode_completion(object_of(R"({"model":"m","prompt":"x"})"), {info, kLimits})).empty());
    CHECK(fault(decode_completion(object_of(R"({"model":"m","prompt":[1]})"), {info, kLimits})).empty());
    CHECK_FALSE(fault(decode_chat(object_of(kChat), {info, kLimits})).empty());
    info.has_tokenizer = true;  // a module may bring the template
    CHECK(fault(decode_chat(object_of(kChat), {info, kLimits})).empty());
    info.has_tokenizer = false;
    CHECK_FALSE(decode_tokenize(object_of(R"({"prompt":"x"})"), {info, kLimits}));
}

TEST_CASE("a fault names the value as JSON and a limit only where there is one", "[net][decode]") {
    CHECK(fault(completion(R"(,"n":1.5)")) == "n: `n` must be an integer from 1 to 16, got 1.5.");
    CHECK(fault(completion(R"(,"n":2.0)")) == "n: `n` must be an integer from 1 to 16, got 2.0.");
    const auto tokens = decode_detokenize(object_of(R"({"tokens":"x"})"), {kInfo, kLimits});
    REQUIRE_FALSE(tokens);
    CHECK(tokens.error().message == "`tokens` must be a list, got \"x\".");
}

}  // namespace
}  // namespace attune
