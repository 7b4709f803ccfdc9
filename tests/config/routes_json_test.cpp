#include "config/routes_file.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <string>

using namespace attune;
using Catch::Matchers::Contains;

namespace {

const std::filesystem::path kWatched = "/etc/attune/routes.toml";

std::string refusal(const std::string& json, const std::filesystem::path& watched = kWatched) {
    const auto routes = parse_routes_json(json, watched);
    REQUIRE_FALSE(routes);
    CHECK(routes.error().code == Errc::invalid_argument);
    CHECK_THAT(routes.error().message, !Contains("/etc"));
    return routes.error().message;
}

}  // namespace

TEST_CASE("rules in JSON say what the same keys say in TOML", "[config][routes]") {
    const auto json = parse_routes_json(R"({
        "default": ["a", {"name": "b", "weight": -0.5}],
        "rule": [{"name": "words", "modules": ["code"], "keywords": ["代码"], "regex": ["err \\d+"], "task_ids": ["t"],
                  "tags": ["x"], "users": ["ann"], "first_tokens": 32, "priority": -3, "owner": "ann-key"}],
        "users": {"王 五": {"tags": ["code"], "modules": "legal"}},
        "classifier": {"file": "router.bin", "threshold": 0.75, "online": true}})",
                                        kWatched);
    REQUIRE(json);
    const auto toml = parse_routes(R"(
default = ["a", { name = "b", weight = -0.5 }]
[[rule]]
name = "words"
modules = ["code"]
keywords = ["代码"]
regex = ['err \d+']
task_ids = ["t"]
tags = ["x"]
users = ["ann"]
first_tokens = 32
priority = -3
owner = "ann-key"
[users]
"王 五" = { tags = ["code"], modules = "legal" }
[classifier]
file = "router.bin"
threshold = 0.75
online = true
)",
                                   "routes.toml");
    REQUIRE(toml);
    for (const RouteFile* file : {&*json, &*toml}) {
        REQUIRE(file->default_modules.size() == 2);
        CHECK(file->default_modules[1].name == "b");
        CHECK(file->default_modules[1].weight == -0.5);
        REQUIRE(file->rules.size() == 1);
        const RouteRule& rule = file->rules[0];
        CHECK(rule.name == "words");
        CHECK(rule.modules.at(0).name == "code");
        CHECK(rule.keywords == std::vector<std::string>{"代码"});
        CHECK(rule.regex == std::vector<std::string>{"err \\d+"});
        CHECK(rule.task_ids == std::vector<std::string>{"t"});
        CHECK(rule.tags == std::vector<std::string>{"x"});
        CHECK(rule.users == std::vector<std::string>{"ann"});
        CHECK(rule.first_tokens == 32);
        CHECK(rule.priority == -3);
        CHECK(rule.owner == "ann-key");
        REQUIRE(file->users.size() == 1);
        CHECK(file->users[0].user == "王 五");
        CHECK(file->users[0].modules.at(0).name == "legal");
        REQUIRE(file->classifier);
        CHECK(file->classifier->threshold == 0.75);
        CHECK(file->classifier->online);
    }
    CHECK(toml->classifier->file == "router.bin");
    CHECK(json->classifier->file == "/etc/attune/router.bin");
    CHECK(parse_routes_json("{}", kWatched)->rules.empty());
}

TEST_CASE("a fault in JSON rules names its place", "[config][routes]") {
    CHECK_THAT(refusal("["), Contains("not a JSON object"));
    CHECK_THAT(refusal("[]"), Contains("not a JSON object"));
    CHECK_THAT(refusal(R"({"rules": []})"), Contains("unknown key rules") && Contains("did you mean rule?"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "tags": ["x"]}, {"modules": ["a"]}]})"),
               Contains("rule 2") && Contains("matches nothing"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "tags": null}]})"), Contains("rule[0].tags is null"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "tags": ["x"], "priority": 101}]})"),
               Contains("priority = 101") && Contains("-100 to 100"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "tags": ["x"], "priority": 18446744073709551615}]})"),
               Contains("rule[0].priority is too large"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "tags": ["x"], "first_tokens": 4}]})"),
               Contains("first_tokens is for keywords and regex"));
    CHECK_THAT(refusal(R"({"rule": [{"modules": ["a"], "regex": ["x"], "first_tokens": 0}]})"),
               Contains("first_tokens = 0") && Contains("1 to 10000"));
    CHECK_THAT(refusal(R"({"default": [[[[[[[[[[["a"]]]]]]]]]]]})"), Contains("nested too deeply"));
    CHECK_THAT(refusal(R"({"classifier": {"online": true}})"), Contains("file is missing"));
    CHECK_THAT(refusal(R"({"classifier": {"file": "x", "threshold": 2}})"), Contains("a number from 0 to 1"));
}

TEST_CASE("rules from the network name no place of the machine but a file beside the routes file", "[config][routes]") {
    for (const char* file : {"../x", "/etc/passwd", "a/b", "..", "."})
        CHECK_THAT(refusal(R"({"classifier": {"file": ")" + std::string(file) + "\"}}"), Contains("without a folder"));
    CHECK_THAT(refusal(R"({"classifier": {"file": "x"}})", ""), Contains("routing.file"));
}

TEST_CASE("a file holds a bounded number of patterns", "[config][routes]") {
    std::string rules;
    for (int i = 0; i < 257; ++i) rules += "[[rule]]\nmodules = [\"a\"]\nregex = [\"x\"]\n";
    const auto many = parse_routes(rules, "routes.toml");
    REQUIRE_FALSE(many);
    CHECK_THAT(many.error().message, Contains("rule 257") && Contains("more than 256 patterns"));
}

TEST_CASE("the stamp changes with the routes file and with the classifier's in force", "[config][routes]") {
    TemporaryFolder folder;
    const auto path = folder.path() / "routes.toml";
    const std::string missing = routes_stamp(path, {});
    folder.write("routes.toml", "default = \"a\"");
    const std::string first = routes_stamp(path, {});
    CHECK(first != missing);
    CHECK(first == routes_stamp(path, {}));
    folder.write("routes.toml", "default = \"ab\"");
    CHECK(routes_stamp(path, {}) != first);
    // As an editor does: another file under the same name, with the same size and time.
    const auto other = folder.write("other.toml", "default = \"ab\"");
    std::filesystem::last_write_time(other, std::filesystem::last_write_time(path));
    const std::string second = routes_stamp(path, {});
    std::filesystem::rename(other, path);
    CHECK(routes_stamp(path, {}) != second);

    RouteFile with_classifier;
    with_classifier.classifier = ClassifierChoice{folder.path() / "router.bin", std::nullopt, false};
    const std::string before = routes_stamp(path, with_classifier);
    folder.write("router.bin", "x");
    CHECK(routes_stamp(path, with_classifier) != before);
}

TEST_CASE("a classifier's file lies beside the routes file", "[config][routes]") {
    TemporaryFolder folder;
    const auto path = folder.write("routes.toml", "[classifier]\nfile = \"router.bin\"\n");
    const auto routes = read_routes(path);
    REQUIRE(routes);
    CHECK(routes->classifier->file == folder.path() / "router.bin");
    CHECK_FALSE(routes->classifier->threshold);
}
