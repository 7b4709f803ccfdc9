#include "net/http_session.hpp"

#include "attune/log.hpp"
#include "net/answer_size.hpp"
#include "net/body_answer.hpp"
#include "net/decode_request.hpp"
#include "net/errors.hpp"
#include "net/stream_answer.hpp"

#include <array>
#include <charconv>
#include <ctime>

namespace attune {
namespace {

std::string_view id_prefix(Endpoint endpoint) { return endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-"; }

HeaderList cold_header(const AnswerRecord& record) { return {{"attune-cold", std::string(cold_word(record.cold()))}}; }

Error for_client(Error error) {
    if (error.code == Errc::unknown_model && error.param.empty()) error.param = "model";
    return error;
}

/// Event frames that wait for the socket. A failure before the admission is kept apart: it can still be a plain error.
class EventFrames final : public AnswerListener {
public:
    void on_admitted() override { is_admitted_ = true; }
    void on_chunk(std::string_view chunk) override { frame(chunk); }
    void on_switched(const Switched&) override {}  // the record on the last chunk tells of it
    void on_revised(const Revised& event, const std::vector<int>& choices) override {
        frames_ += "event: revision\n";
        // The official clients read every event as a chunk: this one has no choices.
        frame(R"({"object":"attune.revision",)" + revision_fields(event, choices) + R"(,"choices":[]})");
    }
    void on_finished() override { frame("[DONE]"); }
    void on_failed(const Error& error) override {
        error_ = for_client(error);
        if (!is_admitted_) return;
        frame(error_body(*error_));
        frame("[DONE]");
    }

    bool is_admitted() const { return is_admitted_; }
    const std::optional<Error>& error() const { return error_; }
    const std::string& pending() const { return frames_; }
    void clear() { frames_.clear(); }

private:
    void frame(std::string_view data) { frames_.append("data: ").append(data).append("\n\n"); }

    std::string frames_;
    std::optional<Error> error_;
    bool is_admitted_ = false;
};

// One piece of a chunked body (RFC 9112, 7.1).
void append_transfer_chunk(std::string& out, std::string_view data) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), data.size(), 16).ptr;
    out.append(digits.data(), end).append("\r\n").append(data).append("\r\n");
}

}  // namespace

asio::awaitable<bool> HttpSession::generate(RequestContext& context, std::string& body) {
    const TimePoint received = steady_now();
    const bool is_chat = context.route.id == RouteId::chat;
    const Decode<ApiRequest> decode = [&](const boost::json::object& object) {
        return is_chat ? decode_chat(object, decode_context()) : decode_completion(object, decode_context());
    };
    auto request = co_await read_as(body, false, decode);
    if (is_gone()) co_return false;
    if (request && !request->stream && least_answer_bytes(*request) > server_.limits.answer_bytes)
        request = make_error(Errc::invalid_argument,
                             "The answer would be larger than " + std::to_string(server_.limits.answer_bytes) +
                                 " bytes (limits.answer_bytes): ask for a stream, or for less.");
    if (!request) {
        const Response refusal = error_response(request.error());
        co_return co_await answer(context, refusal);
    }
    if (!request->unknown_fields.empty())
        log(LogLevel::warn, context.request_id + ": unknown request fields are ignored: " + request->unknown_fields);
    for (auto& prompt : request->prompts) {
        prompt.caller = context.caller;
        prompt.received = received;
    }
    if (request->stream) co_return co_await answer_streamed(context, *request);
    co_return co_await answer_at_once(context, *request);
}

asio::awaitable<bool> HttpSession::answer_at_once(RequestContext& context, ApiRequest& request) {
    BodyAnswer body(request, make_id(id_prefix(request.endpoint)), std::time(nullptr), server_.limits.answer_bytes);
    Generation generation(server_.gateway, strand_, [&](std::size_t prompt, OutputEvent event) {
        body.take(prompt, std::move(event));
        if (body.is_over()) signal_.notify();
    });
    start_watch(&generation);
    generation.start(std::move(request.prompts));
    while (!body.is_over() && !is_gone()) co_await signal_.wait();
    co_await stop_watch();
    if (is_gone()) co_return false;
    Response response;
    if (body.error()) {
        response = error_response(for_client(*body.error()));
    } else {
        response = json_response(body.body());
        response.headers = cold_header(body.record());
        response.headers.emplace_back("attune-served", body.record().served_word());
    }
    co_return co_await answer(context, response);
}

asio::awaitable<bool> HttpSession::answer_streamed(RequestContext& context, ApiRequest& request) {
    EventFrames frames;
    StreamAnswer stream(request, make_id(id_prefix(request.endpoint)), std::time(nullptr), frames);
    Generation generation(server_.gateway, strand_, [&](std::size_t prompt, OutputEvent event) {
        if (is_gone()) return;
        // What waits behind the write in progress counts, before this event: the log-probabilities of one long prompt
        // may be beyond the bound, and the reader is not slow for that.
        if (frames.pending().size() > server_.settings.unsent_bytes) return cut_off();
        stream.take(prompt, std::move(event));
        signal_.notify();
    });
    start_watch(&generation);
    generation.start(std::move(request.prompts));

    // HTTP/1.0 knows no chunks: there the end of the connection ends the body.
    const bool is_chunked = context.http_minor == 1;
    bool must_close = !context.keep_alive || !is_chunked;
    bool has_head = false;
    bool is_over = false;
    while (!is_over && !is_gone()) {
        if (frames.error() && !frames.is_admitted()) break;
        std::string out;
        is_over = stream.is_over();
        if (frames.is_admitted() && !has_head) {
            has_head = true;
            must_close = must_close || is_draining_;
            HeaderList headers = cold_header(stream.record());
            headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
            headers.emplace_back("Cache-Control", "no-cache");
            if (is_chunked) headers.emplace_back("Transfer-Encoding", "chunked");
            out = response_head(context, 200, headers, must_close);
        }
        if (!frames.pending().empty()) {
            is_chunked ? append_transfer_chunk(out, frames.pending()) : void(out += frames.pending());
            frames.clear();
        }
        if (is_over && is_chunked) out += "0\r\n\r\n";
        if (out.empty()) {
            co_await signal_.wait();
            continue;
        }
        const bool is_written = co_await write(out);
        if (!is_written) vanish();
    }
    co_await stop_watch();
    if (is_gone()) co_return false;
    if (!has_head) {
        const Response refusal = error_response(*frames.error());
        co_return co_await answer(context, refusal);
    }
    // After an error in mid-stream the connection ends too: some clients wait for that.
    co_return !must_close && !frames.error() && !is_draining_;
}

}  // namespace attune
