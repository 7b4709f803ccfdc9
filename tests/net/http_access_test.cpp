#include "net/net_fixture.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace attune {
namespace {

/// A keys file for as long as a test runs.
struct KeysFixture : NetFixture {
    std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("attune_keys_" + std::to_string(::getpid()) + ".toml");

    KeysFixture() {
        std::ofstream(file) << "client = [{ key = \"ck\", name = \"ann\" }]\nadmin = [\"ak\"]\n";
        settings.keys_file = file.string();
    }
    ~KeysFixture() { std::filesystem::remove(file); }
};

HttpClient::Headers bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }

TEST_CASE_METHOD(KeysFixture, "with a keys file every route but liveness needs a key", "[net][access]") {
    auto http = client();
    for (const auto& headers : {HttpClient::Headers{}, bearer("wrong"), HttpClient::Headers{{"Authorization", "ck"}},
                                HttpClient::Headers{{"Authorization", "Basic ck"}}}) {
        const auto reply = http.get("/v1/models", headers);
        CHECK(reply.status == 401);
        CHECK(reply.header("www-authenticate") == "Bearer");
        CHECK(text_at(parsed(reply.body), "/error/type") == "AuthenticationError");
    }
    CHECK(http.get("/health").status == 200);
    CHECK(http.get("/ready").status == 200);
    CHECK(http.get("/v1/models", bearer("ck")).status == 200);
    CHECK(http.get("/v1/models", {{"Authorization", "bearer ak"}}).status == 200);
    CHECK(client().get("/v1/ws").status == 401);
}

TEST_CASE_METHOD(KeysFixture, "a client's key is refused where an admin's is needed", "[net][access]") {
    auto http = client();
    CHECK(http.get("/metrics", bearer("ck")).status == 403);
    CHECK(http.get("/metrics", bearer("ak")).status == 200);
    CHECK(http.get("/v1/audit", bearer("ck")).status == 200);
    const auto reply = client().post("/v1/load_lora_adapter", "{}", bearer("ck"));
    CHECK(reply.status == 403);
    CHECK(text_at(parsed(reply.body), "/error/type") == "PermissionDeniedError");
    CHECK(client().post("/v1/audit", "{}", bearer("ck")).status == 403);
    CHECK(client().post("/v1/modules/x/pin", "{}", bearer("ck")).status == 403);
    CHECK(client().request("PUT", "/v1/routes", "{}", bearer("ck")).status == 403);
    CHECK(gateway.audits == std::vector<bool>{false});
}

TEST_CASE_METHOD(KeysFixture, "the key's name goes with the request, whatever the body says", "[net][access]") {
    auto http = client();
    http.get("/v1/modules", bearer("ck"));
    REQUIRE(gateway.list_caller);
    CHECK(gateway.list_caller->name == "ann");
    CHECK_FALSE(gateway.list_caller->admin);
    http.send_request("POST", "/v1/completions", R"({"model":"base-model","prompt":"x","user":"root"})", bearer("ck"));
    const auto job = gateway.wait_submitted();
    CHECK(job.request.caller.name == "ann");
    CHECK_FALSE(job.request.caller.admin);
    CHECK(job.request.user == "root");
    answer_with(job, {});
    CHECK(http.read_reply().status == 200);
}

TEST_CASE_METHOD(KeysFixture, "an unread body of a refused request does not become the next request", "[net][access]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto reply = http.read_reply();
    CHECK(reply.status == 401);
    CHECK(reply.header("connection") == "close");
    http.close();
}

TEST_CASE_METHOD(NetFixture, "binding beyond loopback without keys is refused", "[net][access]") {
    for (const auto* host : {"0.0.0.0", "::"}) {
        settings.host = host;
        const auto listening = Server::listen(settings, limits, gateway);
        REQUIRE_FALSE(listening);
        CHECK_THAT(listening.error().message, Catch::Contains(host) && Catch::Contains("server.keys_file"));
    }
}

TEST_CASE_METHOD(KeysFixture, "binding beyond loopback with keys is allowed, and any Host then", "[net][access]") {
    settings.host = "0.0.0.0";
    auto http = client();
    auto headers = bearer("ck");
    headers.emplace_back("Host", "anything.example");
    CHECK(http.get("/v1/models", headers).status == 200);
}

TEST_CASE_METHOD(NetFixture, "a port in use, a bad host and a bad keys file are named", "[net][access]") {
    settings.port = port();
    const auto taken = Server::listen(settings, limits, gateway);
    REQUIRE_FALSE(taken);
    CHECK_THAT(taken.error().message, Catch::Contains("127.0.0.1:" + std::to_string(settings.port)));
    settings.keys_file = "/nowhere/keys.toml";
    const auto keys = Server::listen(settings, limits, gateway);
    REQUIRE_FALSE(keys);
    CHECK(keys.error().message.find("/nowhere") == std::string::npos);
}

TEST_CASE_METHOD(NetFixture, "without keys a foreign Host is refused but for liveness", "[net][access]") {
    settings.hosts = {"box.lan"};
    auto http = client();
    const auto reply = http.get("/v1/models", {{"Host", "evil.example"}});
    CHECK(reply.status == 403);
    CHECK(text_at(parsed(reply.body), "/error/type") == "PermissionDeniedError");
    CHECK(http.get("/health", {{"Host", "evil.example"}}).status == 200);
    CHECK(http.get("/ready", {{"Host", "evil.example"}}).status == 200);
    CHECK(http.get("/v1/models", {{"Host", "box.lan:1234"}}).status == 200);
    CHECK(http.get("/v1/models", {{"Host", "127.0.0.1:" + std::to_string(port())}}).status == 200);
}

TEST_CASE_METHOD(NetFixture, "a foreign Origin is refused, the server's own and listed ones are not", "[net][access]") {
    settings.cors_origins = {"https://app.example"};
    auto http = client();
    CHECK(http.get("/v1/models", {{"Origin", "https://evil.example"}}).status == 403);
    CHECK(http.get("/v1/models", {{"Origin", "null"}}).status == 403);
    CHECK(http.get("/v1/models", {{"Origin", "http://localhost"}}).status == 200);
    const auto listed = http.get("/v1/models", {{"Origin", "https://app.example"}});
    CHECK(listed.status == 200);
    CHECK(listed.header("access-control-allow-origin") == "https://app.example");
    CHECK(listed.header("vary") == "Origin");
    CHECK_THAT(listed.header("access-control-expose-headers"), Catch::Contains("attune-cold"));
    const auto own = http.get("/v1/models", {{"Origin", "http://localhost"}});
    CHECK(own.header("access-control-allow-origin").empty());
}

TEST_CASE_METHOD(NetFixture, "a page cannot leave the content type out", "[net][access]") {
    settings.cors_origins = {"https://app.example"};
    const auto reply =
        client().post("/v1/modules/x/pin", "{}", {{"Origin", "https://app.example"}, {"Content-Type", ""}});
    CHECK(reply.status == 415);
    CHECK(reply.header("access-control-allow-origin") == "https://app.example");
}

TEST_CASE_METHOD(KeysFixture, "preflights are answered for listed origins, without a key", "[net][access]") {
    settings.cors_origins = {"https://app.example"};
    auto http = client();
    const auto reply = http.request("OPTIONS", "/v1/chat/completions", "",
                                    {{"Origin", "https://app.example"}, {"Access-Control-Request-Method", "POST"}});
    CHECK(reply.status == 204);
    CHECK(reply.header("access-control-allow-origin") == "https://app.example");
    CHECK(reply.header("access-control-allow-methods") == "POST");
    // The official client sends x-stainless-... headers; the star does not cover authorization.
    CHECK(reply.header("access-control-allow-headers") == "authorization, content-type, x-request-id, *");
    CHECK(http.request("OPTIONS", "/v1/chat/completions", "",
                       {{"Origin", "https://evil.example"}, {"Access-Control-Request-Method", "POST"}})
              .status == 403);
    const auto plain = http.request("OPTIONS", "/v1/audit", "", {});
    CHECK(plain.status == 204);
    CHECK(plain.header("allow") == "GET, POST");
    CHECK(http.request("OPTIONS", "/nothing", "", {}).status == 404);
}

TEST_CASE_METHOD(NetFixture, "an HTTP/1.1 request without Host, or with two, is refused", "[net][access]") {
    auto http = client();
    http.send("GET /v1/models HTTP/1.1\r\n\r\n");
    CHECK(http.read_reply().status == 400);
    auto twice = client();
    twice.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n");
    CHECK(twice.read_reply().status == 400);
}

}  // namespace
}  // namespace attune
