#include "net/net_fixture.hpp"
#include "net/ws_client.hpp"

#include <set>

namespace attune {
namespace {

std::string request(const std::string& id, const std::string& fields = "") {
    return R"({"type":"request","id":")" + id +
           R"(","endpoint":"completions","body":{"model":"base-model","prompt":"x")" + fields + "}}";
}

std::string type_of(const boost::json::value& message) { return text_at(message, "/type"); }

TEST_CASE_METHOD(NetFixture, "a WebSocket request is accepted, told in chunks and done", "[net][ws]") {
    WsClient socket(port());
    CHECK(socket.handshake().status == 101);
    CHECK(socket.handshake().header("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    CHECK(socket.handshake().header("sec-websocket-protocol") == "attune.v1");
    socket.send(
        R"({"type":"request","id":"r1","endpoint":"chat.completions","body":{"model":"base-model","messages":[{"role":"user","content":"x"}],"stream":false}})");
    const auto job = gateway.wait_submitted();
    CHECK(job.request.streamed);  // whatever `stream` says
    job.sink->push(admitted(ColdWord::upgrade));
    const auto accepted = socket.read_message();
    CHECK(type_of(accepted) == "accepted");
    CHECK(text_at(accepted, "/id") == "r1");
    CHECK(text_at(accepted, "/cold") == "upgrade");
    job.sink->push(token("a"));
    const auto role = socket.read_message();
    CHECK(type_of(role) == "chunk");
    CHECK(text_at(role, "/data/object") == "chat.completion.chunk");
    CHECK(text_at(socket.read_message(), "/data/choices/0/delta/content") == "a");
    job.sink->push(Switched{1, {applied("legal", 0.5)}});
    const auto change = socket.read_message();
    CHECK(type_of(change) == "switch");
    CHECK(int_at(change, "/base_tokens") == 1);
    CHECK(text_at(change, "/modules/0/name") == "legal");
    job.sink->push(ended());
    job.sink->push(finished(5, 1, 1));
    const auto last = socket.read_message();
    CHECK(text_at(last, "/data/choices/0/finish_reason") == "stop");
    const auto done = socket.read_message();
    CHECK(type_of(done) == "done");
    CHECK(text_at(done, "/id") == "r1");
    CHECK(int_at(done, "/usage/completion_tokens") == 2);
    CHECK(text_at(done, "/attune/served/1/modules/0/name") == "legal");
}

TEST_CASE_METHOD(NetFixture, "a WebSocket request is told that its text so far is void", "[net][ws][revise]") {
    WsClient socket(port());
    socket.send(request("r1", R"(,"attune":{"cold":"revise"})"));
    const auto job = gateway.wait_submitted();
    CHECK(job.request.cold == ColdPolicy::revise);
    job.sink->push(admitted(ColdWord::revise));
    CHECK(text_at(socket.read_message(), "/cold") == "revise");
    job.sink->push(token("a"));
    CHECK(type_of(socket.read_message()) == "chunk");
    job.sink->push(ended());
    job.sink->push(Revised{1, {applied("legal", 0.5)}});
    const auto revision = socket.read_message();
    CHECK(type_of(revision) == "revision");
    CHECK(text_at(revision, "/id") == "r1");
    CHECK(int_at(revision, "/base_tokens") == 1);
    CHECK(text_at(revision, "/modules/0/name") == "legal");
    CHECK(at(revision, "/indexes") == parsed("[0]"));
    job.sink->push(token("b"));
    CHECK(text_at(socket.read_message(), "/data/choices/0/text") == "b");
    job.sink->push(ended());
    job.sink->push(finished(5, 1, 1));
    CHECK(text_at(socket.read_message(), "/data/choices/0/finish_reason") == "stop");
    CHECK(type_of(socket.read_message()) == "done");
}

TEST_CASE_METHOD(NetFixture, "requests of one WebSocket run side by side under their ids", "[net][ws]") {
    WsClient socket(port());
    socket.send(request("a"));
    socket.send(request("b"));
    const auto first = gateway.wait_submitted();
    const auto second = gateway.wait_submitted();
    second.sink->push(admitted());
    CHECK(text_at(socket.read_message(), "/id") == "b");
    first.sink->push(admitted());
    CHECK(text_at(socket.read_message(), "/id") == "a");
    second.sink->push(token("B"));
    CHECK(text_at(socket.read_message(), "/data/choices/0/text") == "B");
    first.sink->push(token("A"));
    const auto chunk = socket.read_message();
    CHECK(text_at(chunk, "/id") == "a");
    CHECK(text_at(chunk, "/data/choices/0/text") == "A");
}

TEST_CASE_METHOD(NetFixture, "an id may be used again once its request is done, not before", "[net][ws]") {
    WsClient socket(port());
    socket.send(request("r"));
    const auto job = gateway.wait_submitted();
    socket.send(request("r"));
    const auto refused = socket.read_message();
    CHECK(type_of(refused) == "error");
    CHECK(text_at(refused, "/id") == "r");
    CHECK(int_at(refused, "/error/code") == 400);
    answer_with(job, {});
    while (type_of(socket.read_message()) != "done") {
    }
    socket.send(request("r"));
    gateway.wait_submitted().sink->push(admitted());
    CHECK(type_of(socket.read_message()) == "accepted");
}

TEST_CASE_METHOD(NetFixture, "a cancelled WebSocket request ends with done", "[net][ws]") {
    WsClient socket(port());
    for (const bool fails : {false, true}) {
        socket.send(request("r"));
        const auto job = gateway.wait_submitted();
        job.sink->push(admitted(ColdWord::warm, 5));
        job.sink->push(token("a"));
        CHECK(type_of(socket.read_message()) == "accepted");
        CHECK(type_of(socket.read_message()) == "chunk");
        socket.send(R"({"type":"cancel","id":"r"})");
        CHECK(gateway.wait_cancelled() == job.request.id);
        if (fails) {
            job.sink->push(Failed{make_error(Errc::cancelled, "cancelled")});
        } else {
            job.sink->push(ended(FinishReason::cancelled));
            job.sink->push(finished(5, 1));
            CHECK(text_at(socket.read_message(), "/data/choices/0/finish_reason") == "abort");
        }
        const auto done = socket.read_message();
        CHECK(type_of(done) == "done");
        CHECK(int_at(done, "/usage/prompt_tokens") == 5);
        CHECK(int_at(done, "/usage/completion_tokens") == 1);
    }
    socket.send(R"({"type":"cancel","id":"gone"})");  // may have crossed its done: no error
    socket.send("{}");
    CHECK(type_of(socket.read_message()) == "error");
    CHECK(gateway.unclaimed_cancels() == 0);
}

TEST_CASE_METHOD(NetFixture, "refused requests and unreadable messages get an error and the socket goes on",
                 "[net][ws]") {
    WsClient socket(port());
    for (const std::string& message :
         {std::string("{"), std::string("[]"), std::string(R"({"type":"explode"})"),
          std::string(R"({"type":"request"})"), std::string(R"({"type":"request","id":7})"),
          std::string(R"({"type":"request","id":"r","endpoint":"images","body":{}})"),
          std::string(R"({"type":"request","id":"r","endpoint":"completions"})"), std::string(R"({"type":"cancel"})"),
          std::string(R"({"type":"hello","user":5})"), request("r", R"(,"n":0)"), std::string(R"({"a":"\ud800"})"),
          std::string(50'000, '[')}) {
        INFO(message.substr(0, 100));
        socket.send(message);
        const auto error = socket.read_message();
        CHECK(type_of(error) == "error");
        CHECK(int_at(error, "/error/code") == 400);
        CHECK(text_at(error, "/error/type") == "BadRequestError");
    }
    socket.send(request("r"));
    gateway.wait_submitted().sink->push(Failed{make_error(Errc::unknown_model, "The model `x` does not exist.")});
    const auto error = socket.read_message();
    CHECK(text_at(error, "/id") == "r");
    CHECK(int_at(error, "/error/code") == 404);
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "hello names the user of requests that name none", "[net][ws]") {
    WsClient socket(port());
    socket.send(R"({"type":"hello","user":"ann"})");
    socket.send(request("a"));
    CHECK(gateway.wait_submitted().request.user == "ann");
    socket.send(request("b", R"(,"user":"bob")"));
    CHECK(gateway.wait_submitted().request.user == "bob");
}

TEST_CASE_METHOD(NetFixture, "a user is greeted with hello and takes leave with the connection, or the next hello",
                 "[net][ws][users]") {
    {
        WsClient socket(port());
        socket.send(R"({"type":"hello","user":"ann"})");
        CHECK(gateway.wait_greeting() == "greet ann");
        socket.send(R"({"type":"hello","user":"ann"})");  // says nothing new
        socket.send(R"({"type":"hello","user":"bob"})");
        CHECK(gateway.wait_greeting() == "leave ann");
        CHECK(gateway.wait_greeting() == "greet bob");
        WsClient(port()).send(R"({"type":"hello"})");  // nobody comes, so nobody leaves
    }
    CHECK(gateway.wait_greeting() == "leave bob");
}

TEST_CASE_METHOD(NetFixture, "a WebSocket that leaves takes its requests along", "[net][ws]") {
    WsClient socket(port());
    socket.send(request("a"));
    socket.send(request("b"));
    const auto first = gateway.wait_submitted();
    const auto second = gateway.wait_submitted();
    second.sink->push(admitted());
    socket.socket().close();
    const std::set<RequestId> cancelled{gateway.wait_cancelled(), gateway.wait_cancelled()};
    CHECK(cancelled == std::set<RequestId>{first.request.id, second.request.id});
}

TEST_CASE_METHOD(NetFixture, "binary frames close with 1003", "[net][ws]") {
    WsClient socket(port());
    socket.send("\x01\x02", WsClient::binary);
    const auto frame = socket.read_frame();
    CHECK(frame.opcode == WsClient::closing);
    CHECK(frame.close_code() == 1003);
}

TEST_CASE_METHOD(NetFixture, "messages beyond the body limit close with 1009", "[net][ws]") {
    settings.max_body_bytes = 1000;
    WsClient socket(port());
    socket.send_frame_head(WsClient::text, 1 << 20);
    const auto frame = socket.read_frame();
    CHECK(frame.opcode == WsClient::closing);
    CHECK(frame.close_code() == 1009);
}

TEST_CASE_METHOD(NetFixture, "a ping gets its pong", "[net][ws]") {
    WsClient socket(port());
    socket.send("are you there", WsClient::ping);
    const auto frame = socket.read_frame();
    CHECK(frame.opcode == WsClient::pong);
    CHECK(frame.payload == "are you there");
}

TEST_CASE_METHOD(NetFixture, "a silent WebSocket is pinged, and closed when it does not answer", "[net][ws]") {
    settings.idle_timeout_s = 0.2;
    WsClient socket(port());
    CHECK(socket.read_frame().opcode == WsClient::ping);
    socket.send("", WsClient::pong);
    CHECK(socket.read_frame().opcode == WsClient::ping);  // it answered: it stays
    CHECK(socket.socket().is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "requests in flight on one WebSocket are bounded", "[net][ws]") {
    settings.ws_requests = 2;
    WsClient socket(port());
    socket.send(request("a"));
    socket.send(request("b"));
    socket.send(request("c"));
    const auto refused = socket.read_message();
    CHECK(text_at(refused, "/id") == "c");
    CHECK(int_at(refused, "/error/code") == 429);
    const auto first = gateway.wait_submitted();
    answer_with(first, {});
    while (type_of(socket.read_message()) != "done") {
    }
    socket.send(request("c"));
    gateway.wait_submitted();
    CHECK(gateway.wait_submitted().request.id != first.request.id);
}

TEST_CASE_METHOD(NetFixture, "a WebSocket reader that is too slow is cut off", "[net][ws]") {
    settings.unsent_bytes = 64 << 10;
    WsClient socket(port(), "attune.v1", 4096);
    socket.send(request("r"));
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    const std::string text(64 << 10, 'x');
    for (int i = 0; i < 512; ++i) job.sink->push(token(text));
    CHECK(gateway.wait_cancelled() == job.request.id);
    CHECK(socket.socket().is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "one message beyond the bound reaches a reader that has nothing else to read",
                 "[net][ws]") {
    settings.unsent_bytes = 64 << 10;
    WsClient socket(port());
    socket.send(request("r"));
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    CHECK(type_of(socket.read_message()) == "accepted");
    const std::string text(256 << 10, 'x');
    job.sink->push(token(text));
    CHECK(text_at(socket.read_message(), "/data/choices/0/text") == text);
}

TEST_CASE_METHOD(NetFixture, "a draining server finishes a WebSocket's requests, then closes with 1001", "[net][ws]") {
    WsClient socket(port());
    socket.send(request("r"));
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    CHECK(type_of(socket.read_message()) == "accepted");
    server->stop_accepting();
    socket.send(request("late"));
    const auto refused = socket.read_message();
    CHECK(text_at(refused, "/id") == "late");
    CHECK(int_at(refused, "/error/code") == 503);
    job.sink->push(ended());
    job.sink->push(finished(1, 0));
    CHECK(type_of(socket.read_message()) == "chunk");
    CHECK(type_of(socket.read_message()) == "done");
    const auto frame = socket.read_frame();
    CHECK(frame.opcode == WsClient::closing);
    CHECK(frame.close_code() == 1001);
}

TEST_CASE_METHOD(NetFixture, "stopping the server ends its WebSockets", "[net][ws]") {
    WsClient socket(port());
    socket.send(request("r"));
    const auto job = gateway.wait_submitted();
    server->stop();
    CHECK(gateway.wait_cancelled() == job.request.id);
    CHECK(socket.socket().is_closed_by_server());
}

TEST_CASE_METHOD(NetFixture, "a WebSocket counts as one connection", "[net][ws]") {
    settings.max_connections = 2;
    WsClient socket(port());
    CHECK(socket.handshake().status == 101);
    auto second = client();
    CHECK(second.get("/health").status == 200);
    CHECK(client().read_reply().status == 503);
}

TEST_CASE_METHOD(NetFixture, "the upgrade checks subprotocol, Origin and that it is one", "[net][ws]") {
    CHECK(WsClient(port(), "").handshake().status == 101);
    CHECK(WsClient(port(), "").handshake().header("sec-websocket-protocol").empty());
    CHECK(WsClient(port(), "other, attune.v1").handshake().header("sec-websocket-protocol") == "attune.v1");
    CHECK(WsClient(port(), "other").handshake().status == 400);
    const auto plain = client().get("/v1/ws");
    CHECK(plain.status == 426);
    CHECK(plain.header("upgrade") == "websocket");
    CHECK(client()
              .get("/v1/ws", {{"Upgrade", "websocket"},
                              {"Connection", "Upgrade"},
                              {"Sec-WebSocket-Version", "13"},
                              {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="},
                              {"Origin", "https://evil.example"}})
              .status == 403);
}

}  // namespace
}  // namespace attune
