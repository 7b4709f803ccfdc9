#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/from_json.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace attune {
namespace {

/// The value as Python shows it, or the error's type.
std::string shown(const std::string& json) {
    jinja::Arena arena;
    try {
        return jinja::repr_of(jinja::value_from_json(arena, json));
    } catch (const jinja::Failure& failure) {
        return failure.type();
    }
}

}  // namespace

TEST_CASE("JSON becomes the values that Python's reader gives", "[engine][text][jinja]") {
    CHECK(shown(R"( {"a": [1, -2.5, true, null], "b": {}} )") == "{'a': [1, -2.5, True, None], 'b': {}}");
    CHECK(shown(R"({"a": 1, "b": 2, "a": 3})") == "{'a': 3, 'b': 2}");
    CHECK(shown(R"("eight or more plain bytes, then \"\\\/\b\f\n\r\t\u00e9\ud83d\ude00")") ==
          "'eight or more plain bytes, then \"\\\\/\\x08\\x0c\\n\\r\\té😀'");
    CHECK(shown("[123456789012345678901234567890, 1e400]") == "ValueError");
    CHECK(shown("[123456789012345678901234567890, 1E2, -0]") == "[123456789012345678901234567890, 100.0, 0]");
}

TEST_CASE("what is no JSON is refused", "[engine][text][jinja]") {
    for (const char* json : {"",
                             " ",
                             "[1,]",
                             "[1",
                             "{\"a\"}",
                             "{\"a\":}",
                             "{a:1}",
                             "{\"a\":1,}",
                             "01",
                             "1.",
                             ".5",
                             "1e",
                             "+1",
                             "-",
                             "tru",
                             "nulls",
                             "[1] 2",
                             "\"a",
                             "\"\\x\"",
                             "\"\\u12\"",
                             "\"\\ud800\"",
                             "\"\\ud800\\u0041\"",
                             "\"\\udc00\"",
                             "\"a\nb\"",
                             "\"12345678\x01\"",
                             "\"\xff\"",
                             "\"eight or more \xc3(\"",
                             "NaN",
                             "Infinity"}) {
        INFO(json);
        CHECK(shown(json) == "ValueError");
    }
    CHECK(shown(std::string(128, '[') + std::string(128, ']')) != "ValueError");
    CHECK(shown(std::string(129, '[') + std::string(129, ']')) == "ValueError");
    CHECK(shown(std::string(1'000'000, '[')) == "ValueError");
}

}  // namespace attune
