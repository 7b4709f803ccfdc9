#include "net/net_fixture.hpp"

namespace attune {
namespace {

TEST_CASE_METHOD(NetFixture, "a head beyond its limit gets 431 before it is all there", "[net][limits]") {
    auto http = client();
    http.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Big: ");
    const std::string block(64 << 10, 'x');
    // A client may go on for ever: the server answers and reads no more than it must.
    for (int i = 0; i < 16 && http.try_send(block); ++i) {
    }
    CHECK(http.read_reply().status == 431);
}

TEST_CASE_METHOD(NetFixture, "very many small headers are too large a head", "[net][limits]") {
    auto http = client();
    std::string head = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 100'000; ++i) head += "a:b\r\n";
    http.try_send(head + "\r\n");
    CHECK(http.read_reply().status == 431);
}

TEST_CASE_METHOD(NetFixture, "a body beyond its limit gets 413, announced or chunked", "[net][limits]") {
    settings.max_body_bytes = 10'000;
    auto announced = client();
    announced.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10001\r\n\r\n");
    CHECK(announced.read_reply().status == 413);
    auto chunked = client();
    chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "1000\r\n" + std::string(4096, 'x') + "\r\n";
    for (int i = 0; i < 3; ++i) chunked.try_send(chunk);  // and without end
    CHECK(chunked.read_reply().status == 413);
    auto fitting = client();
    CHECK(fitting.post("/v1/completions", std::string(10'000, ' ')).status == 400);
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "a chunked body within the limit is read", "[net][limits]") {
    auto http = client();
    const std::string body = kCompletion;
    http.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
              body.substr(0, 5) + "\r\n");
    char size[8];
    std::snprintf(size, sizeof size, "%zx", body.size() - 5);
    http.send(std::string(size) + "\r\n" + body.substr(5) + "\r\n0\r\n\r\n");
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(http.read_reply().status == 200);
}

TEST_CASE_METHOD(NetFixture, "Expect: 100-continue is answered before the body", "[net][limits]") {
    auto http = client();
    const std::string body = kCompletion;
    http.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
    CHECK(http.read_reply().status == 100);
    http.send(body);
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(http.read_reply().status == 200);
}

TEST_CASE_METHOD(NetFixture, "half-sent requests are closed when their time is over", "[net][limits]") {
    settings.request_timeout_s = 0.05;
    auto head = client();
    head.send("GET /health HTT");
    CHECK(head.is_closed_by_server());
    auto body = client();
    body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    CHECK(body.is_closed_by_server());
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "slow bytes do not prolong a request's time", "[net][limits]") {
    settings.request_timeout_s = 0.05;
    auto http = client();
    // Each byte comes after an answered request of another connection, so bytes keep coming until the close.
    const std::string head = "GET /health HTTP/1.1\r\nX-Slow: ";
    CHECK(http.try_send(head));
    const auto start = std::chrono::steady_clock::now();
    bool is_open = true;
    while (is_open && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
        CHECK(client().get("/health").status == 200);
        is_open = http.try_send("x");
    }
    CHECK_FALSE(is_open);
}

TEST_CASE_METHOD(NetFixture, "idle connections are closed", "[net][limits]") {
    settings.idle_timeout_s = 0.05;
    auto fresh = client();
    CHECK(fresh.is_closed_by_server());
    auto used = client();
    CHECK(used.get("/health").status == 200);
    CHECK(used.is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "a generation is not idle however long it takes", "[net][limits]") {
    settings.idle_timeout_s = 0.05;
    settings.request_timeout_s = 0.05;
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletion);
    const auto job = gateway.wait_submitted();
    CHECK(client().is_closed_by_server());  // one idle time-out has passed meanwhile
    CHECK(client().is_closed_by_server());
    answer_with(job, {"a"});
    CHECK(http.read_reply().status == 200);
}

TEST_CASE_METHOD(NetFixture, "connections beyond the limit are told so and closed", "[net][limits]") {
    settings.max_connections = 2;
    auto first = client();
    auto second = client();
    CHECK(first.get("/health").status == 200);
    CHECK(second.get("/health").status == 200);
    auto third = client();
    const auto reply = third.read_reply();
    CHECK(reply.status == 503);
    CHECK(reply.header("retry-after") == "1");
    CHECK(third.is_closed_by_server());
    CHECK(first.get("/health").status == 200);
}

TEST_CASE_METHOD(NetFixture, "what is no HTTP gets 400 and the end", "[net][limits]") {
    for (const std::string bytes : {"\x16\x03\x01\x02\r\n\r\n", "GET /health\r\n\r\n", "GET  / HTTP/9.9\r\n\r\n",
                                    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"}) {
        auto http = client();
        http.send(bytes);
        CHECK(http.read_reply().status == 400);
        http.close();
    }
    CHECK(client().get("/health").status == 200);
}

TEST_CASE_METHOD(NetFixture, "bytes of an unknown transfer coding do not become the next request", "[net][limits]") {
    for (const std::string coding : {"xchunked", "gzip, chunked", "identity"}) {
        auto http = client();
        http.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + coding +
                  "\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        const auto reply = http.read_reply();
        CHECK(reply.status == 501);
        CHECK(reply.header("connection") == "close");
        CHECK(http.is_closed_by_server());
    }
}

TEST_CASE_METHOD(NetFixture, "deep JSON is refused on every route that takes JSON", "[net][limits]") {
    auto http = client();
    const std::string deep = std::string(100'000, '[');
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize",
                             "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/modules/x/pin"})
        CHECK(http.post(path, deep).status == 400);
}

}  // namespace
}  // namespace attune
