#include "actors/house.hpp"
#include "engine/weights/base_audit.hpp"
#include "net/server.hpp"
#include "support/http_client.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

using namespace attune;

namespace {

/// A golden model behind every actor and a real socket; only main() is missing.
struct WholeHouse {
    explicit WholeHouse(Settings settings = {},
                        const std::filesystem::path& model = ATTUNE_TEST_DATA "/golden/models/llama_gqa_tied") {
        settings.model.id = "tiny";
        settings.server.port = 0;
        settings.audit.interval_s = 0;  // passes run when a test asks for one
        EngineOptions options;
        options.model = model;
        options.device = "cpu";
        options.dtype = "f32";
        options.kv_bytes = 1 << 20;
        options.module_bytes = 1 << 20;
        options.threads = 1;
        options.apply = settings.scheduler.apply;
        auto engine = Engine::open(options, nullptr);
        REQUIRE(engine);
        base = (*engine)->audit();
        HouseParts parts;
        parts.engine = std::move(*engine);
        auto started = House::start(settings, std::move(parts));
        REQUIRE(started);
        house = std::move(*started);
        auto listening = Server::listen(settings.server, settings.limits, house->gateway());
        REQUIRE(listening);
        server = std::move(*listening);
    }

    HttpClient::Reply complete(const std::string& name = "tiny") {
        return HttpClient(server->port())
            .post("/v1/completions",
                  R"({"prompt": [185], "max_tokens": 4, "temperature": 0, "logprobs": 2, "attune": {"cold": "wait"},
                      "model": ")" +
                      name + R"("})",
                  {{"Content-Type", "application/json"}});
    }
    /// What an answer says of its tokens.
    static std::string logprobs_of(const HttpClient::Reply& answer) {
        const auto begin = answer.body.find(R"("logprobs":)");
        return begin == std::string::npos ? "none" : answer.body.substr(begin, answer.body.find('}', begin) - begin);
    }
    HttpClient::Reply get(const std::string& path) { return HttpClient(server->port()).get(path); }
    HttpClient::Reply audit() {
        return HttpClient(server->port()).post("/v1/audit", "{}", {{"Content-Type", "application/json"}});
    }

    std::shared_ptr<BaseAudit> base;
    std::unique_ptr<House> house;
    std::unique_ptr<Server> server;  // goes first: it uses the house's gateway
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a whole house answers, and an audit of an untouched base is verified", "[whole]") {
    WholeHouse whole;
    const auto answer = whole.complete();
    CHECK(answer.status == 200);
    CHECK(answer.header("attune-served") == "base");
    CHECK(contains(answer.body, R"("completion_tokens":4)"));
    CHECK(whole.get("/ready").status == 200);

    const auto audit = whole.audit();
    CHECK(audit.status == 200);
    CHECK(contains(audit.body, R"("state":"verified")"));
    CHECK(contains(audit.body, whole.base->checkpoint()));
}

TEST_CASE("a bit flipped in a resident weight is found by one pass and restored, and the answers are the same again",
          "[whole]") {
    WholeHouse whole;
    const auto before = whole.complete();
    REQUIRE(before.status == 200);
    const std::size_t damaged = whole.base->tensors() / 2;
    whole.base->flip_bit(damaged, whole.base->bytes(damaged) / 2);

    const auto audit = whole.audit();  // what the pass found
    CHECK(contains(audit.body, R"("state":"alarm")"));
    CHECK(contains(audit.body, R"("ok":false)"));
    CHECK(contains(audit.body, whole.base->name(damaged)));
    const auto again = whole.audit();  // waits for the repair
    CHECK(contains(again.body, R"("state":"verified")"));
    CHECK(contains(again.body, R"("alarms":1)"));
    CHECK(whole.get("/ready").status == 200);
    const auto after = whole.complete();
    CHECK(after.status == 200);
    CHECK(WholeHouse::logprobs_of(after) == WholeHouse::logprobs_of(before));
    CHECK(contains(whole.get("/metrics").body, "attune_audit_repairs_total"));
}

TEST_CASE("damage that the model's file cannot heal leaves /ready and completions at 503", "[whole]") {
    const TemporaryFolder folder;
    const std::filesystem::path model = folder.path() / "model";
    std::filesystem::copy(ATTUNE_TEST_DATA "/golden/models/llama_gqa_tied", model);
    WholeHouse whole({}, model);
    REQUIRE(whole.complete().status == 200);
    const std::size_t damaged = whole.base->tensors() / 2;
    whole.base->flip_bit(damaged, whole.base->bytes(damaged) / 2);
    // The same open file, every tensor of it written over in place.
    const auto file = model / "model.safetensors";
    const auto size = std::filesystem::file_size(file);
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekp(static_cast<std::streamoff>(size / 8));
    bytes << std::string(size - size / 8, 'x');
    bytes.close();

    CHECK(contains(whole.audit().body, R"("state":"alarm")"));
    CHECK(contains(whole.audit().body, R"("state":"alarm")"));  // after the repair was tried
    const auto ready = whole.get("/ready");
    CHECK(ready.status == 503);
    CHECK(contains(ready.body, "source has changed"));
    CHECK(whole.get("/health").status == 200);
    const auto refused = whole.complete();
    CHECK(refused.status == 503);
    CHECK(contains(refused.body, "resident base has changed"));
}

TEST_CASE("a house that merges says so, answers as one that does not, and its audit raises no alarm", "[whole]") {
    Settings settings;
    settings.modules.roots = {ATTUNE_TEST_DATA "/golden/adapters/llama_gqa_tied"};
    WholeHouse batched(settings);
    settings.scheduler.apply = "merged";
    WholeHouse merged(settings);
    for (const char* name : {"lora_r4", "dora_r4", "lora_r4"}) {
        INFO(name);
        const auto expected = batched.complete(name);
        const auto answer = merged.complete(name);
        REQUIRE(answer.status == 200);
        CHECK(contains(expected.body, R"("apply":"batched")"));
        CHECK(contains(answer.body, R"("apply":"merged")"));
        CHECK(contains(answer.body, name));
        CHECK(contains(merged.audit().body, R"("state":"verified")"));
    }
    CHECK(contains(merged.complete().body, R"("apply":"batched")"));
    CHECK(contains(merged.audit().body, R"("alarms":0)"));
    const std::string metrics = merged.get("/metrics").body;
    CHECK(contains(metrics, "attune_merges_total{engine=\"0\",model_name=\"tiny\"} 3"));
    CHECK(contains(metrics, "attune_restores_total{engine=\"0\",model_name=\"tiny\"} 3"));
    CHECK(contains(metrics, "apply=\"merged\""));
}

TEST_CASE("an answer and the metrics say how much of its prompt was in the cache", "[whole][prefix]") {
    WholeHouse whole;
    std::string prompt = "3";
    for (int id = 4; id < 43; ++id) prompt += ", " + std::to_string(id);
    const auto ask = [&](const std::string& more) {
        return HttpClient(whole.server->port())
            .post("/v1/completions",
                  R"({"model": "tiny", "max_tokens": 4, "temperature": 0, "prompt": [)" + prompt + "]" + more + "}",
                  {{"Content-Type", "application/json"}});
    };
    const auto first = ask("");
    CHECK(contains(first.body, R"("cached_tokens":0)"));
    CHECK(contains(ask("").body, R"("cached_tokens":32)"));
    const auto streamed = ask(R"(, "stream": true, "stream_options": {"include_usage": true})");
    CHECK(contains(streamed.body, R"("cached_tokens":32)"));
    CHECK(contains(ask(R"(, "cache_salt": "mine")").body, R"("cached_tokens":0)"));
    CHECK(contains(ask(R"(, "cache_salt": "mine")").body, R"("cached_tokens":32)"));
    const std::string metrics = whole.get("/metrics").body;
    CHECK(contains(metrics, R"(vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 200)"));
    CHECK(contains(metrics, R"(vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 96)"));
    CHECK(contains(metrics, R"(attune_prefix_cache_blocks{engine="0",model_name="tiny"} 4)"));
}

TEST_CASE("a drained house refuses new work and lets its door close", "[whole]") {
    WholeHouse whole;
    REQUIRE(whole.complete().status == 200);
    REQUIRE(whole.house->drain(std::chrono::seconds(10)));
    CHECK(whole.complete().status == 503);
    CHECK(whole.get("/ready").status == 503);
    CHECK(whole.get("/health").status == 200);
}
