#include "net/json_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

namespace attune {
namespace {

std::string fault(std::string_view text) {
    const auto value = parse_json(text, 8);
    return value ? "" : value.error().message;
}

std::string quoted(std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
}

TEST_CASE("JSON errors name the byte", "[net][json]") {
    CHECK(fault(R"({"a":1,})") == "The body is not valid JSON: syntax error at byte 7.");
    CHECK_THAT(fault(R"({"a":1} x)"), Catch::Contains("extra data at byte 8"));
    CHECK_THAT(fault(R"({"a":)"), Catch::Contains("incomplete"));
    CHECK_THAT(fault(""), Catch::Contains("incomplete"));
}

TEST_CASE("a number is read as the double nearest to it, so that it is written back as it came", "[net][json]") {
    for (const char* text :
         {"0.30000000000000004", "25555555550000000000015907416563667319012", "-1.7976931348623157e308", "5e-324",
          "9007199254740993.0", "0.1234567890123456789", "1E+23", "-0.0"}) {
        const auto value = parse_json(text, 1);
        REQUIRE(value);
        CHECK(value->as_double() == std::strtod(text, nullptr));
        CHECK(parse_json(to_json(*value), 1)->as_double() == value->as_double());
    }
    CHECK(parse_json("1e999", 1)->as_double() == HUGE_VAL);  // whoever reads it refuses it
}

TEST_CASE("lone surrogates and bytes that are no UTF-8 are refused, NUL is ordinary text", "[net][json]") {
    CHECK_FALSE(fault(R"({"a":"\ud800"})").empty());
    CHECK_FALSE(fault(R"({"a":"\udc00"})").empty());
    CHECK_FALSE(fault(R"({"a":"\ud800\u0041"})").empty());
    CHECK_FALSE(fault("{\"a\":\"\xFF\"}").empty());
    CHECK_FALSE(fault("{\"a\":\"\xC0\xAF\"}").empty());
    CHECK_FALSE(fault("{\"a\":\"\xED\xA0\x80\"}").empty());
    const auto value = parse_json(R"({"a":"x\u0000y"})", 8);
    REQUIRE(value);
    CHECK(value->at("a").as_string() == boost::json::string_view("x\0y", 3));
}

TEST_CASE("JSON deeper than the limit is refused without recursion", "[net][json]") {
    CHECK(fault("[[[[[[[[]]]]]]]]").empty());
    CHECK_FALSE(fault("[[[[[[[[[]]]]]]]]]").empty());
    CHECK_FALSE(fault(std::string(100'000, '[')).empty());
}

TEST_CASE("of equal keys the last counts", "[net][json]") {
    const auto value = parse_json(R"({"a":1,"a":2})", 8);
    REQUIRE(value);
    CHECK(value->at("a").as_int64() == 2);
}

TEST_CASE("strings are written so that a JSON reader gets them back", "[net][json]") {
    CHECK(quoted("plain") == "\"plain\"");
    CHECK(quoted("a\"b\\c\n\r\t\x01") == R"("a\"b\\c\n\r\t\u0001")");
    CHECK(quoted("法条 😀") == "\"法条 😀\"");
    CHECK(quoted("a\xFFz\xE6\xB3") == "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST_CASE("whole doubles keep their point and integers have none", "[net][json]") {
    const auto written = [](std::string_view text) { return to_json(*parse_json(text, 8)); };
    CHECK(written("[2.0,0.0,-0.5,0.30000000000000004,1e22,3,-7,18446744073709551615]") ==
          "[2.0,0.0,-0.5,0.30000000000000004,1e+22,3,-7,18446744073709551615]");
    CHECK(written(R"( {"b" : {"é\u0001" : [ ]}, "a" : [{}, null, true, false, "x\"y"]} )") ==
          R"({"b":{"é\u0001":[]},"a":[{},null,true,false,"x\"y"]})");
}

TEST_CASE("a number beyond double is not written as another one", "[net][json]") {
    CHECK(to_json(*parse_json("[1e400,-1e400]", 8)) == "[1e999,-1e999]");
}

TEST_CASE("UTF-8 is checked as Unicode defines it", "[net][json]") {
    CHECK(is_valid_utf8("é法😀"));
    CHECK_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // above U+10FFFF
    CHECK_FALSE(is_valid_utf8("\xE0\x80\x80"));      // overlong
    CHECK_FALSE(is_valid_utf8("\x80"));
    CHECK(lossy_utf8("a\x80z") == "a\xEF\xBF\xBDz");
    CHECK(utf8_length("é法😀a") == 4);
}

}  // namespace
}  // namespace attune
