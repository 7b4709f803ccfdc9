// Large bodies are read away from the IO thread, and answers have a bound.
#include "net/answer_size.hpp"
#include "net/body_answer.hpp"
#include "net/net_fixture.hpp"
#include "net/ws_client.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace attune {
namespace {

constexpr std::size_t kLarge = 100'000;
constexpr std::uint64_t kNoLimit = 1u << 30;

/// Holds whoever passes until it is opened.
class Gate {
public:
    void pass() {
        std::unique_lock lock(mutex_);
        ++waiting_;
        changed_.notify_all();
        changed_.wait_for(lock, kPatience, [&] { return is_open_; });
    }
    void wait_for_someone() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kPatience, [&] { return waiting_ > 0; }))
            throw std::runtime_error("nobody came to the gate");
    }
    void open() {
        const std::lock_guard lock(mutex_);
        is_open_ = true;
        changed_.notify_all();
    }

private:
    static constexpr std::chrono::seconds kPatience{20};
    std::mutex mutex_;
    std::condition_variable changed_;
    int waiting_ = 0;
    bool is_open_ = false;
};

/// Decoding asks for the server's facts: there the gate stops it.
struct HeldReading : NetFixture {
    Gate gate;

    HeldReading() {
        gateway.on_info = [this] { gate.pass(); };
    }
    ~HeldReading() {
        gate.open();
        if (server) server->stop();
    }
};

std::string large(const std::string& json) { return json + std::string(kLarge, ' '); }

TEST_CASE_METHOD(HeldReading, "the one IO thread answers while a large body is read", "[net][bodies]") {
    auto slow = client();
    slow.send_request("POST", "/v1/completions", large(kCompletion));
    gate.wait_for_someone();
    CHECK(client().get("/health").status == 200);
    CHECK(gateway.unclaimed_submits() == 0);
    gate.open();
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(slow.read_reply().status == 200);
    CHECK(slow.get("/health").status == 200);  // the connection goes on
}

TEST_CASE_METHOD(HeldReading, "a large WebSocket message holds up its own connection only", "[net][bodies][ws]") {
    WsClient socket(port());
    socket.send(
        large(R"({"type":"request","id":"a","endpoint":"completions","body":{"model":"base-model","prompt":"x"}})"));
    gate.wait_for_someone();
    CHECK(client().get("/health").status == 200);
    gate.open();
    gateway.wait_submitted().sink->push(admitted());
    CHECK(text_at(socket.read_message(), "/type") == "accepted");
}

TEST_CASE_METHOD(HeldReading, "large bodies beyond server.reading_bytes get 429, small ones pass", "[net][bodies]") {
    settings.reading_bytes = kLarge / 2;  // one alone may be larger
    auto first = client();
    first.send_request("POST", "/v1/completions", large(kCompletion));
    gate.wait_for_someone();
    auto second = client();
    const auto full = second.post("/tokenize", large(R"({"model":"base-model","prompt":"x"})"));
    CHECK(full.status == 429);
    CHECK_FALSE(full.header("retry-after").empty());
    CHECK(text_at(parsed(full.body), "/error/message") ==
          "Too many large bodies are being read (server.reading_bytes).");
    CHECK(second.post("/v1/completions", "[]").status == 400);
    gate.open();
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(first.read_reply().status == 200);
    second.send_request("POST", "/v1/completions", large(kCompletion));
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(second.read_reply().status == 200);
}

TEST_CASE_METHOD(HeldReading, "a client that leaves while its body is read leaves no work behind", "[net][bodies]") {
    {
        auto http = client();
        http.send_request("POST", "/v1/completions", large(kCompletion));
        gate.wait_for_someone();
        http.reset();
    }
    gate.open();
    server->stop();
    CHECK(gateway.unclaimed_submits() == gateway.unclaimed_cancels());
}

TEST_CASE_METHOD(HeldReading, "a server that stops waits for the body being read", "[net][bodies]") {
    auto http = client();
    http.send_request("POST", "/v1/completions", large(kCompletion));
    gate.wait_for_someone();
    std::thread opener([&] { gate.open(); });
    server->stop();
    opener.join();
    CHECK(http.is_closed_by_server());
    CHECK(gateway.unclaimed_submits() == gateway.unclaimed_cancels());
}

TEST_CASE_METHOD(NetFixture, "faults of large bodies are told as those of small ones", "[net][bodies]") {
    auto http = client();
    CHECK(http.post("/v1/completions", large("{")).status == 400);
    CHECK(http.post("/v1/chat/completions", large("[]")).status == 400);
    CHECK(http.post("/detokenize", large(R"({"model":"base-model","tokens":["x"]})")).status == 400);
    const auto fault = http.post("/v1/completions", large(R"({"model":"base-model","prompt":[1,-1]})"));
    CHECK(fault.status == 400);
    CHECK(text_at(parsed(fault.body), "/error/param") == "prompt");
    CHECK(gateway.unclaimed_submits() == 0);
}

TEST_CASE_METHOD(NetFixture, "an unstreamed answer that outgrows limits.answer_bytes ends with 400", "[net][bodies]") {
    limits.answer_bytes = 1000;
    auto http = client();
    http.send_request("POST", "/v1/completions", kCompletion);
    const auto job = gateway.wait_submitted();
    job.sink->push(admitted());
    job.sink->push(token(std::string(1000, 'x')));
    job.sink->push(token("y"));
    const auto reply = http.read_reply();
    CHECK(reply.status == 400);
    CHECK(text_at(parsed(reply.body), "/error/message") ==
          "The answer is larger than 1000 bytes (limits.answer_bytes): ask for a stream, or for less.");
    CHECK(gateway.wait_cancelled() == job.request.id);
    http.send_request("POST", "/v1/completions", kCompletionStream);
    const auto streamed = gateway.wait_submitted();
    streamed.sink->push(admitted());
    streamed.sink->push(token(std::string(2000, 'x')));
    CHECK(http.read_head().status == 200);
}

TEST_CASE_METHOD(NetFixture, "an answer that can only be too large is refused before any work", "[net][bodies]") {
    limits.answer_bytes = 1000;
    auto http = client();
    const std::string ids = "1" + std::string(200, ' ') + ",2,3,4,5,6,7,8,9,10,11";
    const std::string asked = R"({"model":"base-model","prompt":[)" + ids + R"(],"n":2,"echo":true,"logprobs":)";
    CHECK(http.post("/v1/completions", asked + R"(1,"prompt_logprobs":5})").status == 400);
    CHECK(gateway.unclaimed_submits() == 0);
    http.send_request("POST", "/v1/completions", asked + R"(1})");  // might fit
    answer_with(gateway.wait_submitted(), {"ok"});
    CHECK(http.read_reply().status == 200);
}

ScoredToken scored(TokenId id) { return {id, 0.0F, 1, ""}; }

TEST_CASE("least_answer_bytes is never more than the answer has", "[net][bodies]") {
    for (const Endpoint endpoint : {Endpoint::completions, Endpoint::chat}) {
        ApiRequest request;
        request.endpoint = endpoint;
        request.logprobs = true;
        request.prompt_logprobs = true;
        request.echo = endpoint == Endpoint::completions;
        request.choices_per_prompt = 2;
        GenerationRequest one;
        if (endpoint == Endpoint::completions) one.prompt = TokenPrompt{{1, 2, 3}};
        one.sampling.logprobs = 2;
        one.sampling.prompt_logprobs = 2;
        one.sampling.max_tokens = 2;
        one.sampling.ignore_eos = true;
        request.prompts = {one};
        BodyAnswer answer(request, "", 0, kNoLimit);
        answer.take(0, admitted());
        const TokenScores scores{scored(1), {scored(1), scored(2)}};  // texts as short as can be
        answer.take(0, PromptEvent{"", {1, 2, 3}, {std::nullopt, scores, scores}, {"", "", ""}});
        for (int choice : {0, 1, 0, 1}) answer.take(0, scored_token("", 0.0F, {scored(1), scored(2)}, choice));
        const std::uint64_t least = least_answer_bytes(request);
        INFO(answer.body());
        CHECK(least > 100);
        CHECK(least <= answer.body().size());
    }
}

}  // namespace
}  // namespace attune
