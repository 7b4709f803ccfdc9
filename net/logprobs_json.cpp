#include "net/logprobs_json.hpp"

#include "net/json_text.hpp"

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

// What vLLM writes for minus infinity, which JSON cannot carry.
constexpr double kLowest = -9999.0;

// A value of float written as short as a float needs, not with the digits of the double it becomes.
void append_logprob(std::string& out, float logprob) {
    if (!(logprob > kLowest)) {
        out += "-9999.0";
        return;
    }
    append_json_number(out, std::round(static_cast<double>(logprob) * 1e7) / 1e7);
}

void append_scored(std::string& out, const ScoredToken& token) {
    out += R"({"token":)";
    append_json_string(out, token.bytes);
    out += R"(,"logprob":)";
    append_logprob(out, token.logprob);
    out += R"(,"bytes":[)";
    for (const char byte : token.bytes) {
        if (out.back() != '[') out += ',';
        append_json_number(out, std::int64_t{static_cast<unsigned char>(byte)});
    }
    out += ']';
}

}  // namespace

void append_chat_logprob(std::string& out, const TokenScores& scores) {
    append_scored(out, scores.chosen);
    out += R"(,"top_logprobs":[)";
    for (const auto& token : scores.top) {
        if (&token != &scores.top.front()) out += ',';
        append_scored(out, token);
        out += '}';
    }
    out += "]}";
}

void append_prompt_logprobs(std::string& out, const PromptEvent& prompt) {
    out += '[';
    for (const auto& scores : prompt.scores) {
        if (&scores != &prompt.scores.front()) out += ',';
        if (!scores) {
            out += "null";
            continue;
        }
        out += '{';
        const auto append = [&](const ScoredToken& token) {
            if (out.back() != '{') out += ',';
            append_json_string(out, std::to_string(token.id));
            out += R"(:{"logprob":)";
            append_logprob(out, token.logprob);
            out += R"(,"rank":)";
            append_json_number(out, std::int64_t{token.rank});
            out += R"(,"decoded_token":)";
            append_json_string(out, token.bytes);
            out += '}';
        };
        append(scores->chosen);
        for (const auto& token : scores->top)
            if (token.id != scores->chosen.id) append(token);
        out += '}';
    }
    out += ']';
}

void CompletionLogprobs::add(const TokenScores& scores) { add(scores.chosen.bytes, scores); }

void CompletionLogprobs::add(const std::string& piece, const std::optional<TokenScores>& scores) {
    const std::string token = is_valid_utf8(piece) ? piece : lossy_utf8(piece);
    if (!tokens_.empty())
        for (auto* list : {&offsets_, &logprobs_, &tokens_, &top_}) *list += ',';
    append_json_number(offsets_, static_cast<std::int64_t>(offset_));
    append_json_string(tokens_, token);
    offset_ += utf8_length(token);
    if (!scores) {
        logprobs_ += "null";
        top_ += "null";
        return;
    }
    append_logprob(logprobs_, scores->chosen.logprob);
    // An object by text: the chosen token, then the best ones; of two tokens with one text the first stays.
    std::vector<std::string> seen;
    top_ += '{';
    const auto append = [&](const ScoredToken& scored) {
        std::string text = lossy_utf8(scored.bytes);
        if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
        if (!seen.empty()) top_ += ',';
        append_json_string(top_, text);
        top_ += ':';
        append_logprob(top_, scored.logprob);
        seen.push_back(std::move(text));
    };
    append(scores->chosen);
    for (const auto& scored : scores->top) append(scored);
    top_ += '}';
}

void CompletionLogprobs::take(std::string& out) {
    out += R"({"text_offset":[)" + offsets_ + R"(],"token_logprobs":[)" + logprobs_ + R"(],"tokens":[)" + tokens_ +
           R"(],"top_logprobs":[)" + top_ + "]}";
    for (auto* list : {&offsets_, &logprobs_, &tokens_, &top_}) list->clear();
}

}  // namespace attune
