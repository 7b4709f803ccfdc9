#include "engine/sample/output_text.hpp"

#include "support/fake_tokenizer.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

struct Told {
    std::vector<std::string> pieces;
    std::string text;
    std::optional<std::string> stop;
};

SamplingParams stops(std::vector<std::string> stop, bool include = false, int min_tokens = 0) {
    SamplingParams params;
    params.stop = std::move(stop);
    params.include_stop_str_in_output = include;
    params.min_tokens = min_tokens;
    return params;
}

/// Feeds words as tokens until one completes a stop string, then finishes.
Told tell(const std::vector<std::string>& words, const SamplingParams& params) {
    std::map<TokenId, std::string> table;
    for (std::size_t i = 0; i < words.size(); ++i) table[300 + static_cast<TokenId>(i)] = words[i];
    const FakeTokenizer tokenizer(table);
    OutputText output(&tokenizer, params);
    Told told;
    for (std::size_t i = 0; i < words.size() && !told.stop; ++i) {
        auto piece = output.push(300 + static_cast<TokenId>(i));
        told.pieces.push_back(piece.text);
        told.text += piece.text;
        told.stop = piece.stop;
    }
    told.pieces.push_back(output.finish());
    told.text += told.pieces.back();
    return told;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("text without stop strings is sent with its token", "[engine][sample]") {
    CHECK(tell({"Hello", ",", " you"}, {}).pieces == Pieces{"Hello", ",", " you", ""});
}

TEST_CASE("a stop string over several tokens is never seen", "[engine][sample][C2]") {
    const Told told = tell({"abcE", "N", "D", "more"}, stops({"END"}));
    CHECK(told.pieces == Pieces{"abc", "", "", ""});
    CHECK(told.stop == "END");
}

TEST_CASE("a held tail is sent as soon as the match fails", "[engine][sample][C2]") {
    const Told told = tell({"abcEN", "x", "E", "E", "ND"}, stops({"END"}));
    CHECK(told.pieces == Pieces{"abc", "ENx", "", "E", "", ""});
    CHECK(told.stop == "END");
    CHECK(told.text == "abcENxE");
}

TEST_CASE("a held tail that never completes is sent at the end", "[engine][sample]") {
    const Told told = tell({"abcE", "N"}, stops({"END"}));
    CHECK(told.pieces == Pieces{"abc", "", "EN"});
    CHECK_FALSE(told.stop);
}

TEST_CASE("the longest tail that may start any stop string is held", "[engine][sample]") {
    const Told told = tell({"xaab", "!"}, stops({"abc", "aabd"}));
    CHECK(told.pieces == Pieces{"x", "aab!", ""});
}

TEST_CASE("a stop string inside one token cuts it there", "[engine][sample]") {
    CHECK(tell({"one\n\ntwo"}, stops({"\n\n"})).text == "one");
    CHECK(tell({"one\n\ntwo"}, stops({"\n\n"}, true)).text == "one\n\n");
}

TEST_CASE("the stop string is kept when asked for, and what follows is not", "[engine][sample]") {
    const Told told = tell({"abE", "NDxyz"}, stops({"END"}, true));
    CHECK(told.text == "abEND");
    CHECK(told.stop == "END");
}

TEST_CASE("the stop that completes first wins, then the order of the list", "[engine][sample]") {
    CHECK(tell({"abcd"}, stops({"abcd", "bc"})).stop == "bc");
    CHECK(tell({"abc"}, stops({"bc", "abc"})).text == "a");
    CHECK(tell({"abc"}, stops({"abc", "bc"})).text.empty());
}

TEST_CASE("stop strings count only when they complete after min_tokens", "[engine][sample]") {
    const Told told = tell({"END", "x", "END", "y"}, stops({"END"}, false, 2));
    CHECK(told.text == "ENDx");
    CHECK(told.stop == "END");
    const Told crossing = tell({"EN", "D", "y"}, stops({"END"}, false, 1));
    CHECK(crossing.stop == "END");
    CHECK(crossing.text.empty());
}

TEST_CASE("stop strings may hold any characters", "[engine][sample]") {
    const Told told = tell({"契约", "法", "条止", "后"}, stops({"法条"}));
    CHECK(told.text == "契约");
    CHECK(told.stop == "法条");
}

TEST_CASE("a character cut over tokens is held, and one that never completes becomes one mark",
          "[engine][sample][C1]") {
    const FakeTokenizer tokenizer;
    OutputText output(&tokenizer, {});
    CHECK(output.push(0xE6).text.empty());
    CHECK(output.push(0xB3).text.empty());
    CHECK(output.push(0x95).text == "法");
    CHECK(output.push(0xF0).text.empty());
    CHECK(output.push(0x9F).text.empty());
    CHECK(output.finish() == "\uFFFD");
}

TEST_CASE("a hidden end token adds no text but counts as a token", "[engine][sample]") {
    const FakeTokenizer tokenizer({{300, "E"}, {301, "ND"}});
    OutputText output(&tokenizer, stops({"END"}, false, 2));
    CHECK(output.push(300).text.empty());
    output.push_hidden();
    CHECK(output.push(301).stop == "END");
}

TEST_CASE("without a tokenizer texts are empty", "[engine][sample]") {
    OutputText output(nullptr, stops({"END"}));
    CHECK(output.push(65).text.empty());
    output.rollback({});
    CHECK(output.finish().empty());
}

TEST_CASE("special tokens show only when asked for", "[engine][sample]") {
    const FakeTokenizer tokenizer({{300, "<tool>"}}, {300});
    SamplingParams params;
    OutputText hidden(&tokenizer, params);
    CHECK(hidden.push(300).text.empty());
    params.skip_special_tokens = false;
    OutputText shown(&tokenizer, params);
    CHECK(shown.push(300).text == "<tool>");
}

TEST_CASE("tokens rolled back before their text was handed out leave nothing behind", "[engine][sample]") {
    const FakeTokenizer tokenizer({{300, "ab"}, {301, "E"}, {302, "N"}, {303, "x"}});
    OutputText output(&tokenizer, stops({"END"}));
    CHECK(output.push(300).text == "ab");
    CHECK(output.push(301).text.empty());
    CHECK(output.push(302).text.empty());
    const std::vector<TokenId> kept{300};
    output.rollback(kept);
    CHECK(output.push(303).text == "x");
    CHECK(output.finish().empty());
}

TEST_CASE("text handed out before a rollback is not handed out twice", "[engine][sample]") {
    const FakeTokenizer tokenizer({{300, "ab"}, {301, "cd"}, {302, "cdef"}});
    OutputText output(&tokenizer, {});
    CHECK(output.push(300).text == "ab");
    CHECK(output.push(301).text == "cd");
    const std::vector<TokenId> kept{300};
    output.rollback(kept);
    CHECK(output.push(302).text == "ef");
    CHECK(output.finish().empty());
}

TEST_CASE("half a character is rolled back too", "[engine][sample]") {
    const FakeTokenizer tokenizer;
    OutputText output(&tokenizer, {});
    CHECK(output.push('a').text == "a");
    CHECK(output.push(0xE6).text.empty());
    const std::vector<TokenId> kept{'a'};
    output.rollback(kept);
    CHECK(output.push('b').text == "b");
}
