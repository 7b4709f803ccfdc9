#pragma once

#include "attune/settings.hpp"
#include "net/server.hpp"
#include "support/fake_gateway.hpp"
#include "support/http_client.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

namespace attune {

/// What was logged since the last call; log() of these tests keeps its lines.
std::vector<std::string> take_log();

/// A server on a free port before a fake house.
struct NetFixture {
    FakeGateway gateway;
    ServerSettings settings;
    LimitSettings limits;
    std::unique_ptr<Server> server;

    NetFixture() { settings.port = 0; }

    std::uint16_t port() {
        if (!server) {
            auto listening = Server::listen(settings, limits, gateway);
            if (!listening) throw std::runtime_error(listening.error().message);
            server = std::move(*listening);
        }
        return server->port();
    }
    HttpClient client() { return HttpClient(port()); }
};

inline boost::json::value parsed(const std::string& text) { return boost::json::parse(text); }

/// The value at a JSON pointer, e.g. "/choices/0/text".
inline boost::json::value at(const boost::json::value& value, const char* pointer) {
    boost::system::error_code failure;
    const auto* found = value.find_pointer(pointer, failure);
    if (found == nullptr)
        throw std::runtime_error(std::string(pointer) + " is not in " + boost::json::serialize(value));
    return *found;
}

inline std::string text_at(const boost::json::value& value, const char* pointer) {
    const auto found = at(value, pointer);
    return {found.as_string().data(), found.as_string().size()};
}

inline std::int64_t int_at(const boost::json::value& value, const char* pointer) {
    return at(value, pointer).to_number<std::int64_t>();
}

/// Plays the executor for a short answer of one choice.
inline void answer_with(const FakeGateway::Submitted& job, const std::vector<std::string>& texts,
                        const Admitted& first = admitted()) {
    job.sink->push(first);
    for (const auto& text : texts) job.sink->push(token(text));
    job.sink->push(ended());
    job.sink->push(finished(first.prompt_tokens, static_cast<int>(texts.size())));
}

constexpr const char* kCompletion = R"({"model":"base-model","prompt":"hi"})";
constexpr const char* kCompletionStream = R"({"model":"base-model","prompt":"hi","stream":true})";
constexpr const char* kChat = R"({"model":"base-model","messages":[{"role":"user","content":"hi"}]})";
constexpr const char* kChatStream =
    R"({"model":"base-model","messages":[{"role":"user","content":"hi"}],"stream":true})";

}  // namespace attune
