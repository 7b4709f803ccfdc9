#include "attune/log.hpp"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

using namespace attune;
using Catch::Matchers::Contains;

namespace {

/// What `write` writes to stderr.
template <class Write>
std::string written(Write write) {
    std::FILE* const into = std::tmpfile();
    REQUIRE(into != nullptr);
    std::fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    dup2(fileno(into), STDERR_FILENO);
    write();
    std::fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    std::string text;
    std::rewind(into);
    for (int c = std::fgetc(into); c != EOF; c = std::fgetc(into)) text += static_cast<char>(c);
    std::fclose(into);
    set_log(LogLevel::info, "text");
    return text;
}

}  // namespace

TEST_CASE("a text record is one line whatever it carries", "[config][log]") {
    const std::string out = written([] {
        set_log(LogLevel::info, "text");
        log(LogLevel::warn, "first\nsecond\x1b[31m {} %v");
    });
    CHECK_THAT(out, Contains("warn") && Contains("first\\nsecond\\x1b[31m {} %v\n"));
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
}

TEST_CASE("a json record is one JSON object with time, level and text", "[config][log]") {
    const std::string out = written([] {
        set_log(LogLevel::info, "json");
        log(LogLevel::error, "say \"hi\"\nand 你好 %v {}");
    });
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
    const auto record = nlohmann::json::parse(out);
    CHECK(record.at("level") == "error");
    CHECK(record.at("text") == "say \"hi\"\nand 你好 %v {}");
    CHECK(record.at("time").get<std::string>().size() == 24);
}

TEST_CASE("bytes that are no UTF-8 do not break a json record", "[config][log]") {
    const std::string out = written([] {
        set_log(LogLevel::info, "json");
        log(LogLevel::info, "bad \xFF byte");
    });
    CHECK(nlohmann::json::parse(out).at("text") == "bad \xEF\xBF\xBD byte");
}

TEST_CASE("records below the level are not written", "[config][log]") {
    CHECK(written([] {
              set_log(LogLevel::warn, "text");
              log(LogLevel::info, "quiet");
          }).empty());
    CHECK(written([] {
              set_log(LogLevel::off, "text");
              log(LogLevel::error, "quiet");
          }).empty());
}
