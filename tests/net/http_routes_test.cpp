#include "net/net_fixture.hpp"

#include <future>

namespace attune {
namespace {

ModuleStatus module_named(const std::string& name, Tier tier = Tier::resident) {
    ModuleStatus status;
    status.name = name;
    status.kind = "lora";
    status.tier = tier;
    status.generation = std::string(64, 'b');
    status.bytes = 4096;
    status.rank = 8;
    status.targets = {"q_proj"};
    status.rank_and_scale = {{8, 2.0}, {4, 1.0}};
    status.base_match = "shape";
    status.created = 1700000001;
    return status;
}

TEST_CASE_METHOD(NetFixture, "health and readiness", "[net][http]") {
    auto http = client();
    const auto health = http.get("/health");
    CHECK(health.status == 200);
    CHECK(health.header("content-type") == "application/json");
    CHECK(http.get("/ready").status == 200);
    gateway.not_ready = "the audit raised an alarm";
    const auto not_ready = http.get("/ready");
    CHECK(not_ready.status == 503);
    CHECK(text_at(parsed(not_ready.body), "/reason") == "the audit raised an alarm");
    CHECK(http.get("/health").status == 200);
}

TEST_CASE_METHOD(NetFixture, "layers that a module leaves alone are not listed", "[net][http]") {
    gateway.module_list = {module_named("upper")};
    gateway.module_list[0].rank_and_scale = {{0, 0.0}, {8, 2.0}};
    const auto reply = client().get("/v1/modules");
    CHECK(at(parsed(reply.body), "/data/0/layers") == parsed(R"([{"layer":1,"rank":8,"scale":2.0}])"));
}

TEST_CASE_METHOD(NetFixture, "models are listed by name and never by path", "[net][http]") {
    gateway.module_list = {module_named("legal"), module_named("broken", Tier::failed)};
    gateway.module_list[0].generation.reset();
    auto http = client();
    const auto reply = http.get("/v1/models");
    REQUIRE(reply.status == 200);
    const auto json = parsed(reply.body);
    REQUIRE(at(json, "/data").as_array().size() == 2);  // what has failed cannot be asked
    CHECK(text_at(json, "/object") == "list");
    CHECK(text_at(json, "/data/0/id") == "base-model");
    CHECK(text_at(json, "/data/0/root") == "base-model");
    CHECK(at(json, "/data/0/parent").is_null());
    CHECK(int_at(json, "/data/0/max_model_len") == 2048);
    CHECK(text_at(json, "/data/0/permission/0/object") == "model_permission");
    CHECK(text_at(json, "/data/1/id") == "legal");
    CHECK(text_at(json, "/data/1/root") == "legal");
    CHECK(text_at(json, "/data/1/parent") == "base-model");
    CHECK(at(json, "/data/1/max_model_len").is_null());
    CHECK(at(json, "/data/1/adapter_generation").is_null());
    CHECK(text_at(parsed(http.get("/v1/models/legal").body), "/id") == "legal");
    const auto missing = http.get("/v1/models/nope");
    CHECK(missing.status == 404);
    CHECK(text_at(parsed(missing.body), "/error/message") == "The model `nope` does not exist.");
}

TEST_CASE_METHOD(NetFixture, "modules are listed with tier, generation, bytes and errors", "[net][http]") {
    gateway.module_list = {module_named("法条"), module_named("bad", Tier::failed)};
    gateway.module_list[1].last_error = "rank 99 is above 64";
    gateway.module_list[1].owner = "ann";
    const auto json = parsed(client().get("/v1/modules").body);
    CHECK(text_at(json, "/data/0/name") == "法条");
    CHECK(text_at(json, "/data/0/tier") == "resident");
    CHECK(text_at(json, "/data/0/generation") == std::string(64, 'b'));
    CHECK(int_at(json, "/data/0/bytes") == 4096);
    CHECK(int_at(json, "/data/0/rank") == 8);
    CHECK(at(json, "/data/0/layers") ==
          parsed(R"([{"layer":0,"rank":8,"scale":2.0},{"layer":1,"rank":4,"scale":1.0}])"));
    CHECK(at(json, "/data/0/last_error").is_null());
    CHECK(text_at(json, "/data/1/tier") == "failed");
    CHECK(text_at(json, "/data/1/last_error") == "rank 99 is above 64");
    CHECK(text_at(json, "/data/1/owner") == "ann");
}

TEST_CASE_METHOD(NetFixture, "adapters load and unload with vLLM's texts", "[net][http]") {
    LoadModuleRequest seen;
    gateway.on_load = [&](const LoadModuleRequest& request) -> Result<ModuleStatus> {
        seen = request;
        return module_named(request.name);
    };
    gateway.on_remove = [](const std::string& name, const Caller&) -> Result<ModuleStatus> {
        if (name == "sql") return module_named(name);
        return make_error(Errc::unknown_model, "no such module");
    };
    auto http = client();
    const auto loaded =
        http.post("/v1/load_lora_adapter",
                  R"({"lora_name":"sql","lora_path":"sql","load_inplace":true,"expected_generation":"ab"})");
    CHECK(loaded.status == 200);
    CHECK(loaded.body == "Success: LoRA adapter 'sql' added successfully.");
    CHECK(loaded.header("content-type") == "text/plain; charset=utf-8");
    CHECK(seen.path == "sql");
    CHECK(seen.load_inplace);
    CHECK(seen.expected_generation == "ab");
    const auto removed = http.post("/v1/unload_lora_adapter", R"({"lora_name":"sql","lora_int_id":1})");
    CHECK(removed.status == 200);
    CHECK(removed.body == "Success: LoRA adapter 'sql' removed successfully.");
    const auto missing = http.post("/v1/unload_lora_adapter", R"({"lora_name":"x"})");
    CHECK(missing.status == 404);
    CHECK(text_at(parsed(missing.body), "/error/message") == "The lora adapter 'x' cannot be found.");
    CHECK(text_at(parsed(missing.body), "/error/type") == "NotFoundError");
}

TEST_CASE_METHOD(NetFixture, "adapter faults keep vLLM's types and better statuses", "[net][http]") {
    Error error;
    gateway.on_load = [&](const LoadModuleRequest&) -> Result<ModuleStatus> { return error; };
    auto http = client();
    for (const std::string body :
         {"{}", R"({"lora_name":"a"})", R"({"lora_path":"a"})", R"({"lora_name":"","lora_path":"a"})"}) {
        const auto reply = http.post("/v1/load_lora_adapter", body);
        CHECK(reply.status == 400);
        CHECK(text_at(parsed(reply.body), "/error/type") == "InvalidUserInput");
        CHECK(text_at(parsed(reply.body), "/error/message") == "Both 'lora_name' and 'lora_path' must be provided.");
    }
    CHECK(text_at(parsed(http.post("/v1/unload_lora_adapter", "{}").body), "/error/type") == "InvalidUserInput");
    CHECK(http.post("/v1/load_lora_adapter", R"({"lora_name":5,"lora_path":"a"})").status == 400);
    struct Row {
        Errc code;
        int status;
        const char* type;
    };
    for (const auto& row : std::vector<Row>{{Errc::already_exists, 400, "InvalidUserInput"},
                                            {Errc::not_found, 404, "NotFoundError"},
                                            {Errc::invalid_module, 422, "UnprocessableEntityError"},
                                            {Errc::conflict, 409, "ConflictError"},
                                            {Errc::overloaded, 429, "RateLimitError"}}) {
        error = make_error(row.code, "why");
        const auto reply = http.post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"b"})");
        CHECK(reply.status == row.status);
        CHECK(text_at(parsed(reply.body), "/error/type") == row.type);
        CHECK(text_at(parsed(reply.body), "/error/message") == "why");
    }
}

TEST_CASE_METHOD(NetFixture, "module orders take {} or nothing and answer 200, 202 or 404", "[net][http]") {
    std::vector<std::pair<std::string, ModuleOrder>> seen;
    gateway.on_order = [&](const std::string& name, ModuleOrder order, const Caller&) -> Result<ModuleStatus> {
        seen.emplace_back(name, order);
        if (name == "nope") return make_error(Errc::unknown_model, "The model `nope` does not exist.");
        return module_named(name, order == ModuleOrder::load ? Tier::loading : Tier::resident);
    };
    auto http = client();
    CHECK(http.post("/v1/modules/legal/load", "{}").status == 202);
    CHECK(http.post("/v1/modules/%E6%B3%95/pin", "").status == 200);
    CHECK(text_at(parsed(http.post("/v1/modules/legal/unpin", "{}").body), "/name") == "legal");
    CHECK(http.post("/v1/modules/nope/unload", "{}").status == 404);
    CHECK(http.post("/v1/modules/legal/load", "[]").status == 400);
    CHECK(http.post("/v1/modules/%FF/load", "{}").status == 400);
    REQUIRE(seen.size() == 4);
    CHECK(seen[1] == std::pair<std::string, ModuleOrder>{"法", ModuleOrder::pin});
    CHECK(seen[3].second == ModuleOrder::unload);
}

TEST_CASE_METHOD(NetFixture, "GET audit tells, POST audit runs a pass", "[net][http]") {
    auto http = client();
    const auto json = parsed(http.get("/v1/audit").body);
    CHECK(at(json, "/ok") == true);
    CHECK(text_at(json, "/state") == "verified");
    CHECK(int_at(json, "/runs") == 3);
    CHECK(http.post("/v1/audit", "").status == 200);
    CHECK(http.post("/v1/audit", "{}").status == 200);
    CHECK(gateway.audits == std::vector<bool>{false, true, true});
}

TEST_CASE_METHOD(NetFixture, "tokenize and detokenize", "[net][http]") {
    TokenizeRequest seen;
    gateway.on_tokenize = [&](const TokenizeRequest& request) -> Result<TokenizeResult> {
        seen = request;
        if (request.model == "nope") return make_error(Errc::unknown_model, "The model `nope` does not exist.");
        return TokenizeResult{{1, 2, 3}, 2048};
    };
    gateway.on_detokenize = [](const std::string&, const std::vector<TokenId>& ids) -> Result<std::string> {
        return "<s>" + std::to_string(ids.size());
    };
    auto http = client();
    const auto reply = http.post("/tokenize", R"({"model":"base-model","prompt":"hi","add_special_tokens":false})");
    CHECK(reply.body == R"({"tokens":[1,2,3],"count":3,"max_model_len":2048,"token_strs":null})");
    CHECK_FALSE(std::get<TextPrompt>(seen.prompt).add_special_tokens);
    CHECK_FALSE(seen.token_texts);
    gateway.on_tokenize = [&, plain = gateway.on_tokenize](const TokenizeRequest& request) {
        auto result = plain(request);
        if (result && request.token_texts) result->texts = {"a", "\xE4\xBB", "\"\n"};
        return result;
    };
    CHECK(
        http.post("/tokenize", R"({"prompt":"hi","return_token_strs":true})").body ==
        "{\"tokens\":[1,2,3],\"count\":3,\"max_model_len\":2048,\"token_strs\":[\"a\",\"\uFFFD\uFFFD\",\"\\\"\\n\"]}");
    CHECK(http.post("/tokenize", R"({"prompt":"hi","chat_template":"x"})").status == 501);
    CHECK(http.post("/tokenize", R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})")
              .status == 200);
    CHECK(seen.model == "base-model");
    CHECK_FALSE(std::get<ChatPrompt>(seen.prompt).add_generation_prompt);
    const auto unknown = http.post("/tokenize", R"({"model":"nope","prompt":"x"})");
    CHECK(unknown.status == 404);
    CHECK(text_at(parsed(unknown.body), "/error/param") == "model");
    CHECK(http.post("/tokenize", R"({"model":"base-model"})").status == 400);
    CHECK(http.post("/detokenize", R"({"model":"base-model","tokens":[5,6]})").body == R"({"prompt":"<s>2"})");
    CHECK(http.post("/detokenize", R"({"model":"base-model","tokens":[1000]})").status == 400);
    CHECK(http.post("/detokenize", R"({"model":"base-model"})").status == 400);
}

TEST_CASE_METHOD(NetFixture, "metrics are Prometheus text", "[net][http]") {
    const auto reply = client().get("/metrics");
    CHECK(reply.header("content-type") == "text/plain; version=0.0.4; charset=utf-8");
    CHECK(reply.body == "attune_up 1\n");
}

TEST_CASE_METHOD(NetFixture, "a reply that comes from another thread after the call is waited for", "[net][http]") {
    Reply<std::string> later;
    std::promise<void> asked;
    gateway.on_metrics = [&](Reply<std::string> reply) {
        later = std::move(reply);
        asked.set_value();
    };
    auto http = client();
    http.send_request("GET", "/metrics", "");
    asked.get_future().wait();
    later(std::string("late 1\n"));
    CHECK(http.read_reply().body == "late 1\n");
}

TEST_CASE_METHOD(NetFixture, "unknown paths, wrong methods and wrong types have their own statuses", "[net][http]") {
    auto http = client();
    const auto missing = http.get("/v1/nothing");
    CHECK(missing.status == 404);
    CHECK(text_at(parsed(missing.body), "/error/type") == "NotFoundError");
    CHECK(int_at(parsed(missing.body), "/error/code") == 404);
    const auto method = http.request("DELETE", "/v1/audit", "", {});
    CHECK(method.status == 405);
    CHECK(method.header("allow") == "GET, POST");
    CHECK(client().post("/v1/completions", kCompletion, {{"Content-Type", "text/plain"}}).status == 415);
    CHECK(client().post("/v1/completions", kCompletion, {{"Content-Type", "multipart/form-data"}}).status == 415);
    CHECK(client().post("/v1/completions", "[1]", {{"Content-Type", "Application/JSON; charset=utf-8"}}).status == 400);
    CHECK(client().post("/v1/completions", "[1]", {{"Content-Type", ""}}).status == 400);  // absent: JSON
    CHECK(http.request("HEAD", "/health", "", {}).status == 200);
    CHECK(http.get("/health").status == 200);  // HEAD left no body behind
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "x-request-id is echoed, or made when absent or unfit", "[net][http]") {
    auto http = client();
    CHECK(http.get("/health", {{"x-request-id", "abc-1"}}).header("x-request-id") == "abc-1");
    const auto made = http.get("/health").header("x-request-id");
    CHECK(made.size() == 36);
    CHECK(http.get("/health").header("x-request-id") != made);
    CHECK(http.get("/health", {{"x-request-id", std::string(200, 'x')}}).header("x-request-id").size() == 36);
}

TEST_CASE_METHOD(NetFixture, "bad JSON is refused with its position, and the connection goes on", "[net][http]") {
    auto http = client();
    for (const std::string& body :
         {std::string(R"({"model":"base-model","prompt":"\ud800"})"), std::string("{\"prompt\":\"\xFF\"}"),
          std::string("{\"a\":"), std::string("[]"), std::string("5"), std::string(100'000, '['), std::string()}) {
        const auto reply = http.post("/v1/completions", body);
        CHECK(reply.status == 400);
        CHECK(text_at(parsed(reply.body), "/error/type") == "BadRequestError");
    }
    CHECK_THAT(http.post("/v1/chat/completions", R"({"a":1,})").body, Catch::Contains("at byte 7"));
    CHECK(gateway.unclaimed_submits() == 0);
}

}  // namespace
}  // namespace attune
