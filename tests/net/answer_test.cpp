#include "net/body_answer.hpp"
#include "net/net_fixture.hpp"
#include "net/stream_answer.hpp"

namespace attune {
namespace {

/// Keeps what a door would send.
struct Listener final : AnswerListener {
    std::vector<std::string> steps;  ///< "admitted", "finished", …
    std::vector<boost::json::value> chunks;
    std::size_t told_before = 0;  ///< chunks at the last revision

    void on_admitted() override { steps.emplace_back("admitted"); }
    void on_chunk(std::string_view chunk) override { chunks.push_back(parsed(std::string(chunk))); }
    void on_switched(const Switched&) override { steps.emplace_back("switched"); }
    void on_revised(const Revised&, const std::vector<int>& choices) override {
        steps.emplace_back("revised");
        for (const int choice : choices) steps.back() += " " + std::to_string(choice);
        told_before = chunks.size();
    }
    void on_finished() override { steps.emplace_back("finished"); }
    void on_failed(const Error& error) override { steps.push_back("failed: " + error.message); }
};

ApiRequest request_for(Endpoint endpoint, std::size_t prompts = 1, int n = 1) {
    ApiRequest request;
    request.endpoint = endpoint;
    request.model = "legal";
    request.prompts.resize(prompts);
    request.choices_per_prompt = n;
    return request;
}

bool has(const boost::json::value& value, const char* key) { return value.as_object().contains(key); }

TEST_CASE("a chat stream is role, texts, end, and attune rides on the end", "[net][answer]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::chat), "chatcmpl-1", 99, out);
    stream.take(0, admitted(ColdWord::upgrade));
    CHECK(out.steps == std::vector<std::string>{"admitted"});
    CHECK(out.chunks.empty());
    stream.take(0, token("He"));
    stream.take(0, token(""));  // held back: nothing to tell
    stream.take(0, token("llo"));
    stream.take(0, ChoiceFinished{0, FinishReason::stop, "!", std::string("END")});
    REQUIRE(out.chunks.size() == 3);  // the end waits for the record
    stream.take(0, finished(5, 1, 2));
    REQUIRE(out.chunks.size() == 4);
    for (const auto& chunk : out.chunks) {
        CHECK(text_at(chunk, "/id") == "chatcmpl-1");
        CHECK(text_at(chunk, "/object") == "chat.completion.chunk");
        CHECK(text_at(chunk, "/model") == "legal");
        CHECK(int_at(chunk, "/created") == 99);
        CHECK(int_at(chunk, "/choices/0/index") == 0);
        CHECK_FALSE(has(chunk, "usage"));
    }
    CHECK(at(out.chunks[0], "/choices/0/delta") == parsed(R"({"role":"assistant","content":""})"));
    CHECK(at(out.chunks[0], "/choices/0/finish_reason").is_null());
    CHECK(at(out.chunks[1], "/choices/0/delta") == parsed(R"({"content":"He"})"));
    CHECK(at(out.chunks[2], "/choices/0/delta") == parsed(R"({"content":"llo"})"));
    CHECK_FALSE(has(out.chunks[2], "attune"));
    CHECK(at(out.chunks[3], "/choices/0/delta") == parsed(R"({"content":"!"})"));
    CHECK(text_at(out.chunks[3], "/choices/0/finish_reason") == "stop");
    CHECK(text_at(out.chunks[3], "/choices/0/stop_reason") == "END");
    const auto attune = at(out.chunks[3], "/attune");
    CHECK(attune == parsed(R"({"route":{"rule":"explicit","modules":[]},"cold":"upgrade","apply":"batched","served":[
        {"modules":[],"tokens":1},{"modules":[{"name":"legal","generation":")" +
                           std::string(64, 'a') + R"(","weight":1.0}],"tokens":2}],"queue_ms":0.5,"ttft_ms":31.0})"));
    CHECK(out.steps.back() == "finished");
    CHECK(stream.is_over());
}

TEST_CASE("the end of a chat choice without held text has an empty delta", "[net][answer]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::chat), "i", 0, out);
    stream.take(0, admitted());
    stream.take(0, ChoiceFinished{0, FinishReason::length, "", TokenId{3}});
    stream.take(0, finished(5, 0));
    REQUIRE(out.chunks.size() == 2);
    CHECK(at(out.chunks[1], "/choices/0/delta") == parsed("{}"));
    CHECK(text_at(out.chunks[1], "/choices/0/finish_reason") == "length");
    CHECK(int_at(out.chunks[1], "/choices/0/stop_reason") == 3);
}

TEST_CASE("usage comes in a chunk of its own, only when asked for", "[net][answer]") {
    for (const bool wanted : {false, true}) {
        Listener out;
        ApiRequest request = request_for(Endpoint::completions, 1, 2);
        request.include_usage = wanted;
        StreamAnswer stream(request, "cmpl-1", 0, out);
        stream.take(0, admitted());
        stream.take(0, token("a", 0));
        stream.take(0, token("b", 1));
        stream.take(0, ended(FinishReason::stop, 1));
        stream.take(0, ended(FinishReason::length, 0));
        stream.take(0, finished(5, 2));
        REQUIRE(out.chunks.size() == (wanted ? 5u : 4u));
        CHECK(int_at(out.chunks[2], "/choices/0/index") == 1);
        CHECK_FALSE(has(out.chunks[2], "attune"));
        CHECK(has(out.chunks[3], "attune"));
        CHECK(at(out.chunks[3], "/choices/0/text") == "");
        if (!wanted) continue;
        CHECK(at(out.chunks[4], "/choices") == parsed("[]"));
        CHECK(
            at(out.chunks[4], "/usage") ==
            parsed(
                R"({"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":2}})"));
    }
}

TEST_CASE("continuous usage runs along in every chunk", "[net][answer]") {
    Listener out;
    ApiRequest request = request_for(Endpoint::chat);
    request.continuous_usage_stats = true;
    StreamAnswer stream(request, "i", 0, out);
    stream.take(0, admitted(ColdWord::warm, 5));
    stream.take(0, token("a"));
    stream.take(0, token("b"));
    stream.take(0, ended());
    stream.take(0, finished(5, 2));
    REQUIRE(out.chunks.size() == 4);
    const std::vector<int> counts{1, 1, 2, 2};  // the role comes with the first token
    for (std::size_t i = 0; i < counts.size(); ++i) {
        CHECK(int_at(out.chunks[i], "/usage/completion_tokens") == counts[i]);
        CHECK(int_at(out.chunks[i], "/usage/prompt_tokens") == 5);
    }
}

TEST_CASE("with several prompts nothing is told before all are admitted", "[net][answer]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::completions, 2, 2), "i", 0, out);
    stream.take(0, admitted());
    stream.take(0, token("early", 1));
    CHECK(out.steps.empty());
    CHECK(out.chunks.empty());
    stream.take(1, admitted(ColdWord::fallback, 7));
    CHECK(out.steps == std::vector<std::string>{"admitted"});
    REQUIRE(out.chunks.size() == 1);
    CHECK(int_at(out.chunks[0], "/choices/0/index") == 1);
    stream.take(1, token("x", 1));
    CHECK(int_at(out.chunks[1], "/choices/0/index") == 3);
    CHECK(stream.record().cold() == ColdWord::fallback);
    for (std::size_t prompt = 0; prompt < 2; ++prompt)
        for (int choice = 0; choice < 2; ++choice) stream.take(prompt, ended(FinishReason::stop, choice));
    stream.take(0, finished(5, 1));
    CHECK_FALSE(stream.is_over());
    Finished second = finished(7, 1);
    second.served[0].choice = 1;
    stream.take(1, second);
    REQUIRE(stream.is_over());
    const auto& last = out.chunks.back();
    CHECK(int_at(last, "/attune/served/0/choice") == 0);
    CHECK(int_at(last, "/attune/served/1/choice") == 3);
    CHECK(stream.record().usage_json().find("\"prompt_tokens\":12") != std::string::npos);
}

TEST_CASE("a refusal of the last prompt comes before anything else", "[net][answer]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::completions, 2), "i", 0, out);
    stream.take(0, admitted());
    stream.take(0, token("early"));
    stream.take(1, Failed{make_error(Errc::overloaded, "full")});
    CHECK(out.steps == std::vector<std::string>{"failed: full"});
    CHECK(out.chunks.empty());
    stream.take(0, token("late"));
    CHECK(out.chunks.empty());
}

TEST_CASE("chat log-probabilities in a stream come with their token, also without text", "[net][answer]") {
    Listener out;
    ApiRequest request = request_for(Endpoint::chat);
    request.logprobs = true;
    StreamAnswer stream(request, "i", 0, out);
    stream.take(0, admitted());
    TokenEvent event = scored_token("\xE6\xB3", -0.5f, {{9, -0.5f, 1, "\xE6\xB3"}, {8, -INFINITY, 2, "z"}});
    event.text = "";
    stream.take(0, event);
    REQUIRE(out.chunks.size() == 2);
    CHECK(at(out.chunks[1], "/choices/0/delta") == parsed("{}"));
    CHECK(at(out.chunks[1], "/choices/0/logprobs") ==
          parsed("{\"content\":[{\"token\":\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[230,179],\"top_"
                 "logprobs\":["
                 "{\"token\":\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[230,179]},"
                 "{\"token\":\"z\",\"logprob\":-9999.0,\"bytes\":[122]}]}]}"));
}

TEST_CASE("completion log-probabilities: four lists, offsets in characters that run on over chunks", "[net][answer]") {
    Listener out;
    ApiRequest request = request_for(Endpoint::completions);
    request.logprobs = true;
    request.echo = true;
    StreamAnswer stream(request, "i", 0, out);
    stream.take(0, admitted());
    PromptEvent prompt;
    prompt.text = "法a";
    prompt.ids = {1, 2};
    prompt.pieces = {"法", "a"};
    prompt.scores = {std::nullopt, TokenScores{{2, -1.5f, 3, "a"}, {{4, -0.25f, 1, "b"}}}};
    stream.take(0, prompt);
    stream.take(0, scored_token("c", -2, {{7, -2, 1, "c"}}));
    REQUIRE(out.chunks.size() == 2);
    CHECK(text_at(out.chunks[0], "/choices/0/text") == "法a");
    CHECK(
        at(out.chunks[0], "/choices/0/logprobs") ==
        parsed(
            R"({"text_offset":[0,1],"token_logprobs":[null,-1.5],"tokens":["法","a"],"top_logprobs":[null,{"a":-1.5,"b":-0.25}]})"));
    CHECK(at(out.chunks[1], "/choices/0/logprobs") ==
          parsed(R"({"text_offset":[2],"token_logprobs":[-2.0],"tokens":["c"],"top_logprobs":[{"c":-2.0}]})"));
}

TEST_CASE("an unstreamed chat body", "[net][answer]") {
    BodyAnswer body(request_for(Endpoint::chat, 1, 2), "chatcmpl-1", 99, 1u << 20);
    body.take(0, admitted());
    body.take(0, token("a", 1));
    body.take(0, token("b", 0));
    body.take(0, ended(FinishReason::length, 0, "tail"));
    body.take(0, ended(FinishReason::cancelled, 1));
    CHECK_FALSE(body.is_over());
    body.take(0, finished(5, 2));
    REQUIRE(body.is_over());
    const auto json = parsed(body.body());
    CHECK(text_at(json, "/object") == "chat.completion");
    CHECK(text_at(json, "/id") == "chatcmpl-1");
    CHECK(
        at(json, "/choices/0") ==
        parsed(
            R"({"index":0,"message":{"role":"assistant","content":"btail","refusal":null},"logprobs":null,"finish_reason":"length","stop_reason":null})"));
    CHECK(text_at(json, "/choices/1/message/content") == "a");
    CHECK(text_at(json, "/choices/1/finish_reason") == "abort");
    CHECK(int_at(json, "/usage/total_tokens") == 7);
    CHECK(int_at(json, "/attune/served/0/choice") == 0);
    CHECK(at(json, "/system_fingerprint").is_null());
}

TEST_CASE("an unstreamed completion body with echo and prompt log-probabilities", "[net][answer]") {
    ApiRequest request = request_for(Endpoint::completions);
    request.echo = request.logprobs = request.prompt_logprobs = true;
    BodyAnswer body(request, "cmpl-1", 1, 1u << 20);
    body.take(0, admitted());
    PromptEvent prompt;
    prompt.text = "ab";
    prompt.ids = {1, 2};
    prompt.pieces = {"a", "b"};
    prompt.scores = {std::nullopt, TokenScores{{2, -1, 2, "b"}, {{3, -0.5f, 1, "c"}, {2, -1, 2, "b"}}}};
    body.take(0, prompt);
    body.take(0, scored_token("d", -3, {}));
    body.take(0, ended());
    body.take(0, finished(2, 1));
    const auto json = parsed(body.body());
    CHECK(text_at(json, "/choices/0/text") == "abd");
    CHECK(at(json, "/choices/0/logprobs/text_offset") == parsed("[0,1,2]"));
    CHECK(at(json, "/choices/0/logprobs/tokens") == parsed(R"(["a","b","d"])"));
    CHECK(
        at(json, "/choices/0/prompt_logprobs") ==
        parsed(
            R"([null,{"2":{"logprob":-1.0,"rank":2,"decoded_token":"b"},"3":{"logprob":-0.5,"rank":1,"decoded_token":"c"}}])"));
}

TEST_CASE("the served word tells base, module or both", "[net][answer]") {
    const auto word = [](const Finished& event) {
        AnswerRecord record(1, 1);
        record.admitted(0, admitted());
        record.finished(0, event);
        return record.served_word();
    };
    CHECK(word(finished(5, 3)) == "base");
    CHECK(word(finished(5, 0, 3)) == "module");
    CHECK(word(finished(5, 1, 3)) == "mixed");
    Finished switched_at_once = finished(5, 0, 3);
    switched_at_once.served.push_back({0, {}, 0});
    CHECK(word(switched_at_once) == "module");
}

TEST_CASE("modules that nobody vouches for are marked", "[net][answer]") {
    AnswerRecord record(1, 1);
    record.admitted(0, admitted());
    Finished event = finished(1, 0, 1);
    event.served[0].modules[0].unverified = true;
    event.apply = ApplyMode::merged;
    record.finished(0, event);
    const auto json = parsed(record.attune_json());
    CHECK(at(json, "/served/0/modules/0/unverified") == true);
    CHECK(text_at(json, "/apply") == "merged");
}

Revised revision() { return Revised{2, {applied("legal")}}; }

TEST_CASE("a revised stream begins again after the revision, its end told once", "[net][answer][revise]") {
    for (const auto endpoint : {Endpoint::chat, Endpoint::completions}) {
        Listener out;
        ApiRequest request = request_for(endpoint);
        request.include_usage = true;
        StreamAnswer stream(request, "i", 0, out);
        stream.take(0, admitted(ColdWord::revise));
        stream.take(0, token("ba"));
        stream.take(0, token("se"));
        stream.take(0, ended(FinishReason::stop));
        const std::size_t before = out.chunks.size();
        stream.take(0, revision());
        CHECK(out.steps.back() == "revised 0");
        CHECK(out.chunks.size() == before);  // the end that was held back is void
        stream.take(0, token("new"));
        stream.take(0, ended(FinishReason::length));
        stream.take(0, finished(5, 2, 1));
        const bool is_chat = endpoint == Endpoint::chat;
        REQUIRE(out.chunks.size() == before + (is_chat ? 4 : 3));
        if (is_chat) CHECK(text_at(out.chunks[before], "/choices/0/delta/role") == "assistant");
        const auto& text = out.chunks[before + (is_chat ? 1 : 0)];
        CHECK(text_at(text, is_chat ? "/choices/0/delta/content" : "/choices/0/text") == "new");
        int ends = 0;
        for (const auto& chunk : out.chunks) {
            const auto choices = at(chunk, "/choices");
            if (!choices.as_array().empty()) ends += !at(chunk, "/choices/0/finish_reason").is_null();
        }
        CHECK(ends == 1);
        const auto& last = out.chunks[out.chunks.size() - 2];
        CHECK(text_at(last, "/choices/0/finish_reason") == "length");
        CHECK(text_at(last, "/attune/cold") == "revise");
        CHECK(int_at(last, "/attune/served/0/tokens") == 2);
        CHECK(int_at(last, "/attune/served/1/tokens") == 1);
        CHECK(int_at(out.chunks.back(), "/usage/completion_tokens") == 3);
        CHECK(stream.is_over());
    }
}

TEST_CASE("a revision reopens the choices of its own prompt only", "[net][answer][revise]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::completions, 2, 2), "i", 0, out);
    stream.take(0, admitted(ColdWord::revise));
    stream.take(1, admitted(ColdWord::revise));
    stream.take(0, ended(FinishReason::stop, 0));
    stream.take(0, ended(FinishReason::stop, 1));
    stream.take(1, ended(FinishReason::stop, 0));
    stream.take(1, ended(FinishReason::length, 1));  // the last of all: held back
    CHECK(out.chunks.size() == 3);
    stream.take(0, revision());
    CHECK(out.steps.back() == "revised 0 1");
    REQUIRE(out.chunks.size() == 4);  // the other prompt's end is not the last any more
    CHECK(int_at(out.chunks[3], "/choices/0/index") == 3);
    CHECK_FALSE(has(out.chunks[3], "attune"));
    stream.take(1, finished(5, 0));
    stream.take(0, ended(FinishReason::stop, 0));
    stream.take(0, ended(FinishReason::stop, 1));
    stream.take(0, finished(5, 0));
    REQUIRE(out.chunks.size() == 6);
    CHECK(has(out.chunks[5], "attune"));
    CHECK(stream.is_over());
}

TEST_CASE("an unstreamed revised answer holds the second text only and counts both", "[net][answer][revise]") {
    for (const auto endpoint : {Endpoint::chat, Endpoint::completions}) {
        const bool is_chat = endpoint == Endpoint::chat;
        ApiRequest request = request_for(endpoint, 1, 2);
        request.logprobs = true;
        request.prompt_logprobs = true;
        request.echo = !is_chat;
        BodyAnswer body(request, "i", 0, 2000);
        body.take(0, admitted(ColdWord::revise));
        const PromptEvent prompt{"p", {1}, {std::nullopt}, {"p"}};
        body.take(0, prompt);
        for (int choice = 0; choice < 2; ++choice) {
            TokenEvent scored = token(std::string(700, 'b'), choice);
            scored.scores = TokenScores{{5, -0.5F, 1, "b"}, {}};
            body.take(0, scored);
            body.take(0, ended(FinishReason::stop, choice));
        }
        CHECK_FALSE(body.is_over());
        body.take(0, revision());
        body.take(0, prompt);
        for (int choice = 0; choice < 2; ++choice) {
            body.take(0, token(std::string(700, 'n'), choice));  // beyond the limit if the first still counted
            body.take(0, ended(FinishReason::length, choice));
        }
        body.take(0, finished(1, 2, 2));
        REQUIRE_FALSE(body.error());
        REQUIRE(body.is_over());
        const auto json = parsed(body.body());
        for (const char* index : {"0", "1"}) {
            const std::string choice = std::string("/choices/") + index;
            const std::string text = text_at(json, (choice + (is_chat ? "/message/content" : "/text")).c_str());
            CHECK(text == (is_chat ? "" : "p") + std::string(700, 'n'));
            CHECK(text_at(json, (choice + "/finish_reason").c_str()) == "length");
        }
        CHECK(int_at(json, "/usage/completion_tokens") == 4);
        CHECK(text_at(json, "/attune/cold") == "revise");
        CHECK(body.record().served_word() == "mixed");
    }
}

TEST_CASE("overlaps of the modules stand in the route", "[net][answer]") {
    Listener out;
    StreamAnswer stream(request_for(Endpoint::completions), "i", 0, out);
    stream.take(0, admitted());
    stream.take(0, ended());
    Finished last = finished(5, 0, 1);
    last.overlaps = {{{"a", "b"}, "0-29", {"q_proj", "v_proj"}}, {{"a", "b"}, "", {"lm_head"}}};
    stream.take(0, last);
    CHECK(at(out.chunks.back(), "/attune/route") == parsed(R"({"rule":"explicit","modules":[],"overlaps":[
        {"modules":["a","b"],"layers":"0-29","projections":["q_proj","v_proj"]},
        {"modules":["a","b"],"projections":["lm_head"]}]})"));
}

}  // namespace
}  // namespace attune
