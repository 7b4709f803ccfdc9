#include "net/net_fixture.hpp"

namespace attune {
namespace {

TEST_CASE_METHOD(NetFixture, "an unstreamed chat answer carries headers, usage and attune", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/chat/completions", kChat);
    const auto job = gateway.wait_submitted();
    CHECK(job.request.model == "base-model");
    CHECK_FALSE(job.request.streamed);
    CHECK(job.request.received != TimePoint{});
    CHECK(job.request.caller.admin);
    answer_with(job, {"Hello", " there"}, admitted(ColdWord::wait));
    const auto reply = http.read_reply();
    CHECK(reply.status == 200);
    CHECK(reply.header("attune-served") == "base");
    CHECK(reply.header("attune-cold") == "wait");
    const auto json = parsed(reply.body);
    CHECK(text_at(json, "/choices/0/message/content") == "Hello there");
    CHECK(text_at(json, "/choices/0/finish_reason") == "stop");
    CHECK(text_at(json, "/id").substr(0, 9) == "chatcmpl-");
    CHECK(int_at(json, "/usage/completion_tokens") == 2);
    CHECK(int_at(json, "/attune/served/0/tokens") == 2);
    CHECK(gateway.unclaimed_cancels() == 0);
}

TEST_CASE_METHOD(NetFixture, "a completion with several prompts and n choices is one body", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", R"({"model":"base-model","prompt":["a","b"],"n":2})");
    const auto first = gateway.wait_submitted();
    const auto second = gateway.wait_submitted();
    for (const auto* job : {&second, &first}) {
        const std::string name = std::get<TextPrompt>(job->request.prompt).text;
        job->sink->push(admitted());
        for (int choice = 0; choice < 2; ++choice) {
            job->sink->push(token(name + std::to_string(choice), choice));
            job->sink->push(ended(FinishReason::length, choice));
        }
        job->sink->push(finished(5, 2));
    }
    const auto json = parsed(http.read_reply().body);
    REQUIRE(at(json, "/choices").as_array().size() == 4);
    const std::vector<std::string> texts{"a0", "a1", "b0", "b1"};
    for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(int_at(json, ("/choices/" + std::to_string(i) + "/index").c_str()) == static_cast<int>(i));
        CHECK(text_at(json, ("/choices/" + std::to_string(i) + "/text").c_str()) == texts[i]);
    }
    CHECK(int_at(json, "/usage/prompt_tokens") == 10);
    CHECK(int_at(json, "/usage/completion_tokens") == 4);
}

TEST_CASE_METHOD(NetFixture, "events of a stream go out as they come", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/chat/completions", kChatStream);
    const auto job = gateway.wait_submitted();
    CHECK(job.request.streamed);
    job.sink->push(admitted(ColdWord::upgrade));
    const auto head = http.read_head();  // the head alone: no token is there yet
    CHECK(head.status == 200);
    CHECK(head.header("content-type") == "text/event-stream; charset=utf-8");
    CHECK(head.header("attune-cold") == "upgrade");
    CHECK(head.header("attune-served").empty());
    CHECK_FALSE(head.header("x-request-id").empty());
    job.sink->push(token("one"));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/delta/role") == "assistant");
    CHECK(text_at(parsed(http.read_event()), "/choices/0/delta/content") == "one");
    job.sink->push(Switched{1, {applied("legal")}});
    job.sink->push(token("two"));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/delta/content") == "two");
    job.sink->push(ended(FinishReason::length));
    job.sink->push(finished(5, 1, 1));
    const auto last = parsed(http.read_event());
    CHECK(text_at(last, "/choices/0/finish_reason") == "length");
    CHECK(text_at(last, "/attune/served/1/modules/0/name") == "legal");
    CHECK(http.read_event() == "[DONE]");
    CHECK(http.read_event().empty());
    CHECK(http.get("/health").status == 200);  // the connection goes on
    CHECK(gateway.unclaimed_cancels() == 0);
}

TEST_CASE_METHOD(NetFixture, "a stream that asked for revise gets an event of that name before the second answer",
                 "[net][http][generate][revise]") {
    auto http = client();
    http.send_request("POST", "/v1/completions",
                      R"({"model":"base-model","prompt":"hi","stream":true,"attune":{"cold":"revise"}})");
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted(ColdWord::revise));
    CHECK(http.read_head().header("attune-cold") == "revise");
    job.sink->push(token("first"));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/text") == "first");
    job.sink->push(Revised{1, {applied("legal")}});
    const auto revision = parsed(http.read_event("revision"));
    CHECK(text_at(revision, "/modules/0/name") == "legal");
    CHECK(int_at(revision, "/base_tokens") == 1);
    CHECK(at(revision, "/indexes") == parsed("[0]"));
    CHECK(at(revision, "/choices") == parsed("[]"));
    job.sink->push(token("second"));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/text") == "second");
    job.sink->push(ended());
    job.sink->push(finished(5, 1, 1));
    CHECK(text_at(parsed(http.read_event()), "/attune/cold") == "revise");
    CHECK(http.read_event() == "[DONE]");
}

TEST_CASE_METHOD(NetFixture, "usage is the last chunk before [DONE], only when asked for", "[net][http][generate]") {
    auto http = client();
    for (const bool wanted : {true, false}) {
        const std::string options = wanted ? R"(,"stream_options":{"include_usage":true})" : "";
        http.send_request("POST", "/v1/completions",
                          R"({"model":"base-model","prompt":"x","stream":true,"n":2)" + options + "}");
        const auto job = gateway.wait_submitted();
        job.sink->push(admitted());
        for (int choice = 0; choice < 2; ++choice) job.sink->push(ended(FinishReason::length, choice));
        job.sink->push(finished(5, 0));
        http.read_head();
        std::vector<boost::json::value> chunks;
        for (std::string event = http.read_event(); event != "[DONE]"; event = http.read_event())
            chunks.push_back(parsed(event));
        REQUIRE(chunks.size() == (wanted ? 3u : 2u));
        if (!wanted) continue;
        CHECK(at(chunks[2], "/choices").as_array().empty());
        CHECK(int_at(chunks[2], "/usage/prompt_tokens") == 5);
        CHECK(http.read_event().empty());
    }
}

TEST_CASE_METHOD(NetFixture, "a failure before the first byte is a plain error with its status",
                 "[net][http][generate]") {
    auto http = client();
    struct Row {
        Errc code;
        int status;
    };
    for (const auto& row : std::vector<Row>{{Errc::unknown_model, 404},
                                            {Errc::context_exceeded, 400},
                                            {Errc::invalid_module, 422},
                                            {Errc::overloaded, 429},
                                            {Errc::unavailable, 503},
                                            {Errc::timeout, 504}}) {
        for (const char* body : {kCompletion, kCompletionStream}) {
            http.send_request("POST", "/v1/completions", body);
            gateway.wait_submitted().sink->push(Failed{make_error(row.code, "the reason")});
            const auto reply = http.read_reply();
            CHECK(reply.status == row.status);
            CHECK(reply.header("content-type") == "application/json");
            CHECK(text_at(parsed(reply.body), "/error/message") == "the reason");
            CHECK(reply.header("retry-after").empty() == (row.status != 429 && row.status != 503));
        }
    }
    http.send_request("POST", "/v1/completions", kCompletion);
    gateway.wait_submitted().sink->push(Failed{make_error(Errc::unknown_model, "The model `x` does not exist.")});
    CHECK(text_at(parsed(http.read_reply().body), "/error/param") == "model");
}

TEST_CASE_METHOD(NetFixture, "a stream that is refused by its fields is a plain 400", "[net][http][generate]") {
    auto http = client();
    const auto reply = http.post("/v1/completions", R"({"model":"base-model","prompt":"x","stream":true,"n":0})");
    CHECK(reply.status == 400);
    CHECK(text_at(parsed(reply.body), "/error/param") == "n");
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "a failure in mid-stream is an error event, [DONE] and the end", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    job.sink->push(token("a"));
    job.sink->push(Failed{make_error(Errc::non_finite, "module \"legal\": logits are not finite")});
    CHECK(http.read_head().status == 200);
    CHECK(text_at(parsed(http.read_event()), "/choices/0/text") == "a");
    const auto error = parsed(http.read_event());
    CHECK(int_at(error, "/error/code") == 500);
    CHECK(text_at(error, "/error/type") == "InternalServerError");
    CHECK(http.read_event() == "[DONE]");
    CHECK(http.read_event().empty());
    CHECK(http.is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "one refused prompt refuses the request and cancels the others", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", R"({"model":"base-model","prompt":["a","b"],"stream":true})");
    const auto first = gateway.wait_submitted();
    const auto second = gateway.wait_submitted();
    first.sink->push(admitted());
    first.sink->push(token("x"));
    second.sink->push(Failed{make_error(Errc::overloaded, "full")});
    CHECK(http.read_reply().status == 429);
    CHECK(gateway.wait_cancelled() == first.request.id);
}

TEST_CASE_METHOD(NetFixture, "a client that leaves cancels its request in every state", "[net][http][generate]") {
    for (const char* body : {kCompletion, kCompletionStream}) {
        for (const int state : {0, 1, 2}) {  // queued or loading, admitted, decoding
            INFO(body << " state " << state);
            auto http = client();
            http.send_request("POST", "/v1/completions", body);
            const auto job = gateway.wait_submitted();
            if (state > 0) job.sink->push(admitted());
            if (state > 1) job.sink->push(token("x"));
            if (state > 0 && body == kCompletionStream) CHECK(http.read_head().status == 200);
            state == 1 ? http.reset() : http.close();
            CHECK(gateway.wait_cancelled() == job.request.id);
            job.sink->push(token("late"));  // the executor may not know yet
            job.sink->push(Failed{make_error(Errc::cancelled, "the client left")});
        }
    }
    CHECK(gateway.unclaimed_cancels() == 0);
}

TEST_CASE_METHOD(NetFixture, "all prompts of a request leave with its client", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", R"({"model":"base-model","prompt":["a","b","c"]})");
    std::vector<FakeGateway::Submitted> jobs;
    for (int i = 0; i < 3; ++i) jobs.push_back(gateway.wait_submitted());
    jobs[1].sink->push(Failed{make_error(Errc::internal, "x")});
    const auto reply = http.read_reply();
    CHECK(reply.status == 500);
    CHECK(gateway.wait_cancelled() == jobs[0].request.id);
    CHECK(gateway.wait_cancelled() == jobs[2].request.id);
    CHECK(gateway.unclaimed_cancels() == 0);
}

TEST_CASE_METHOD(NetFixture, "pipelined requests are answered in order", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    CHECK(http.read_head().status == 200);
    http.send_request("GET", "/health", "");  // comes while the answer is under way
    http.send_request("GET", "/v1/nothing", "");
    job.sink->push(ended());
    job.sink->push(finished(1, 0));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/finish_reason") == "stop");
    CHECK(http.read_event() == "[DONE]");
    CHECK(http.read_event().empty());
    CHECK(http.read_reply().status == 200);
    CHECK(http.read_reply().status == 404);
}

TEST_CASE_METHOD(NetFixture, "a reader that is too slow is cut off and its work cancelled", "[net][http][generate]") {
    settings.unsent_bytes = 64 << 10;
    HttpClient http(port(), 4096);
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    // Far more than the bound and what kernels buffer for a connection.
    const std::string text(64 << 10, 'x');
    for (int i = 0; i < 512; ++i) job.sink->push(token(text));
    CHECK(gateway.wait_cancelled() == job.request.id);
    CHECK(http.is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "a fast reader gets any amount of text under the same bound", "[net][http][generate]") {
    settings.unsent_bytes = 64 << 10;
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    http.read_head();
    const std::string text(16 << 10, 'x');
    for (int i = 0; i < 64; ++i) {
        job.sink->push(token(text));
        CHECK(text_at(parsed(http.read_event()), "/choices/0/text") == text);
    }
    job.sink->push(ended());
    job.sink->push(finished(1, 64));
    http.read_event();
    CHECK(http.read_event() == "[DONE]");
}

TEST_CASE_METHOD(NetFixture, "one event beyond the bound reaches a reader that has nothing else to read",
                 "[net][http][generate]") {
    settings.unsent_bytes = 64 << 10;
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    http.read_head();
    const std::string text(256 << 10, 'x');
    job.sink->push(token(text));
    CHECK(text_at(parsed(http.read_event()), "/choices/0/text") == text);
    job.sink->push(ended());
    job.sink->push(finished(1, 1));
    http.read_event();
    CHECK(http.read_event() == "[DONE]");
}

TEST_CASE_METHOD(NetFixture, "many tokens that are there at once go out in order", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    std::vector<std::string> texts;
    for (int i = 0; i < 500; ++i) texts.push_back(std::to_string(i) + " ");
    answer_with(job, texts);
    http.read_head();
    std::string got;
    for (std::string event = http.read_event(); event != "[DONE]"; event = http.read_event())
        got += text_at(parsed(event), "/choices/0/text");
    std::string expected;
    for (const auto& text : texts) expected += text;
    CHECK(got == expected);
}

TEST_CASE_METHOD(NetFixture, "unknown fields are answered and logged under the request's id", "[net][http][generate]") {
    take_log();
    auto http = client();
    http.send_request("POST", "/v1/chat/completions",
                      R"({"model":"base-model","messages":[{"role":"user","content":"x"}],"parallel_tool_calls":true})",
                      {{"x-request-id", "r-7"}});
    answer_with(gateway.wait_submitted(), {"a"});
    CHECK(http.read_reply().status == 200);
    const auto lines = take_log();
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Catch::StartsWith("r-7: ") && Catch::Contains("\"parallel_tool_calls\""));
}

TEST_CASE_METHOD(NetFixture, "an HTTP/1.0 client gets its stream to the end of the connection",
                 "[net][http][generate]") {
    auto http = client();
    const std::string body = kCompletionStream;
    http.send("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
    answer_with(gateway.wait_submitted(), {"a"});
    const auto head = http.read_head();
    CHECK(head.header("transfer-encoding").empty());
    CHECK(head.header("connection") == "close");
    CHECK(http.read_bytes(6) == "data: ");
    CHECK(http.is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "stopping the server ends its streams and cancels their work", "[net][http][generate]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    http.read_head();
    server->stop();
    CHECK(gateway.wait_cancelled() == job.request.id);
    CHECK(http.is_closed_by_server());
    job.sink->push(token("the sink may outlive the server"));
    server.reset();
    job.sink->push(Failed{make_error(Errc::cancelled, "x")});
}

TEST_CASE_METHOD(NetFixture, "a draining server finishes its answers and takes no new connection",
                 "[net][http][generate]") {
    auto idle = client();
    CHECK(idle.get("/health").status == 200);
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletion);
    const auto job = gateway.wait_submitted();
    server->stop_accepting();
    CHECK(idle.is_closed_by_server());
    answer_with(job, {"a"});
    const auto reply = http.read_reply();
    CHECK(reply.status == 200);
    CHECK(reply.header("connection") == "close");
    CHECK(http.is_closed_by_server());
    CHECK_THROWS(HttpClient(server->port()).get("/health"));
}

}  // namespace
}  // namespace attune
