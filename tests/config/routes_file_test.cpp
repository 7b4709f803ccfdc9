#include "config/routes_file.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace attune;
using Catch::Matchers::Contains;

namespace {

std::string refusal(const std::string& text) {
    const auto routes = parse_routes(text, "routes.toml");
    REQUIRE_FALSE(routes);
    CHECK(routes.error().code == Errc::invalid_argument);
    return routes.error().message;
}

}  // namespace

TEST_CASE("an empty routes file has no rules and the base as default", "[config][routes]") {
    const auto routes = parse_routes("", "routes.toml");
    REQUIRE(routes);
    CHECK(routes->rules.empty());
    CHECK(routes->users.empty());
    CHECK(routes->default_modules.empty());
}

TEST_CASE("a rule's fields are read, and rules keep the file's order", "[config][routes]") {
    const auto routes = parse_routes(R"(
[[rule]]
modules = ["code", { name = "style", weight = -0.5 }]
keywords = ["code", "代码"]
task_ids = ["t"]
tags = ["a", "b"]
users = ["ann"]
priority = -3
owner = "ann-key"
[[rule]]
modules = "legal"
keywords = ["clause"]
)",
                                     "routes.toml");
    REQUIRE(routes);
    REQUIRE(routes->rules.size() == 2);
    const RouteRule& rule = routes->rules[0];
    REQUIRE(rule.modules.size() == 2);
    CHECK(rule.modules[0].name == "code");
    CHECK(rule.modules[0].weight == 1.0);
    CHECK(rule.modules[1].name == "style");
    CHECK(rule.modules[1].weight == -0.5);
    CHECK(rule.keywords == std::vector<std::string>{"code", "代码"});
    CHECK(rule.task_ids == std::vector<std::string>{"t"});
    CHECK(rule.tags == std::vector<std::string>{"a", "b"});
    CHECK(rule.users == std::vector<std::string>{"ann"});
    CHECK(rule.priority == -3);
    CHECK(rule.owner == "ann-key");
    CHECK(routes->rules[1].modules.at(0).name == "legal");
}

TEST_CASE("the default is one name, several modules, or the base", "[config][routes]") {
    CHECK(parse_routes("default = \"a\"", "r")->default_modules.size() == 1);
    CHECK(parse_routes("default = [\"a\", {name = \"b\", weight = 2}]", "r")->default_modules.size() == 2);
    CHECK(parse_routes("default = \"\"", "r")->default_modules.empty());
    CHECK(parse_routes("default = []", "r")->default_modules.empty());
}

TEST_CASE("a rule may send its matches to the plain base, but must say so", "[config][routes]") {
    const auto routes = parse_routes("[[rule]]\nmodules = []\nkeywords = [\"plain\"]", "r");
    REQUIRE(routes);
    CHECK(routes->rules.at(0).modules.empty());
    CHECK_THAT(refusal("[[rule]]\nkeywords = [\"plain\"]"), Contains("rule 1: modules is missing"));
}

TEST_CASE("users map to tags and modules", "[config][routes]") {
    const auto routes = parse_routes(R"(
[users]
ann = { tags = ["legal"], modules = ["legal-qa"] }
"王 五" = { tags = ["code"] }
)",
                                     "routes.toml");
    REQUIRE(routes);
    REQUIRE(routes->users.size() == 2);
    for (const UserPreference& user : routes->users) {
        if (user.user == "ann") {
            CHECK(user.tags == std::vector<std::string>{"legal"});
            CHECK(user.modules.at(0).name == "legal-qa");
        } else {
            CHECK(user.user == "王 五");
            CHECK(user.modules.empty());
        }
    }
}

TEST_CASE("a wrong rule is named by its number, line, key and value", "[config][routes]") {
    const std::string good = "[[rule]]\nmodules = [\"a\"]\nkeywords = [\"k\"]\n";
    CHECK_THAT(refusal(good + "[[rule]]\nmodules = [\"b\"]\nkeyword = [\"k\"]\n"),
               Contains("routes.toml, line 6: rule 2") && Contains("keyword = ") && Contains("did you mean keywords?"));
    CHECK_THAT(refusal(good + "priority = 101"), Contains("rule 1, priority = 101") && Contains("-100 to 100"));
    CHECK_THAT(refusal(good + "priority = 1.5"), Contains("-100 to 100"));
    CHECK_THAT(refusal(good + "owner = 5"), Contains("rule 1, owner = 5"));
    CHECK_THAT(refusal(good + "tags = \"x\""), Contains("rule 1, tags") && Contains("a list of texts"));
    CHECK_THAT(refusal(good + "tags = [1]"), Contains("rule 1, tags") && Contains("1 is not a text"));
}

TEST_CASE("a rule that can match nothing is refused", "[config][routes]") {
    CHECK_THAT(refusal("[[rule]]\nmodules = [\"a\"]\n"), Contains("rule 1") && Contains("matches nothing"));
    CHECK_THAT(refusal("[[rule]]\nmodules = [\"a\"]\nkeywords = []\n"), Contains("matches nothing"));
}

TEST_CASE("a blank keyword, which would match everything, is refused", "[config][routes]") {
    CHECK_THAT(refusal("[[rule]]\nmodules = [\"a\"]\nkeywords = [\"\"]\n"), Contains("match everything"));
    CHECK_THAT(refusal("[[rule]]\nmodules = [\"a\"]\nkeywords = [\" \"]\n"), Contains("match everything"));
}

TEST_CASE("wrong modules of a rule are named", "[config][routes]") {
    const auto rule = [](const std::string& modules) { return "[[rule]]\nkeywords = [\"k\"]\nmodules = " + modules; };
    CHECK_THAT(refusal(rule("[\"auto\"]")), Contains("module \"auto\""));
    CHECK_THAT(refusal(rule("[\"\"]")), Contains("is empty"));
    CHECK_THAT(refusal(rule("[1]")), Contains("1 is not a module"));
    CHECK_THAT(refusal(rule("[\"a/b\"]")), Contains("not a module's name"));
    CHECK_THAT(refusal(rule("[\"a\", \"a\"]")), Contains("named twice"));
    CHECK_THAT(refusal(rule("[{name = \"a\", weight = 101}]")), Contains("between -100 and 100"));
    CHECK_THAT(refusal(rule("[{name = \"a\", weight = nan}]")), Contains("between -100 and 100"));
    CHECK_THAT(refusal(rule("[{name = \"a\", wieght = 1}]")), Contains("wieght"));
    CHECK_THAT(refusal(rule("[{weight = 1}]")), Contains("is empty"));
    CHECK_THAT(refusal(rule("[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]")), Contains("more than 8"));
}

TEST_CASE("unknown words at the top of a routes file are refused", "[config][routes]") {
    CHECK_THAT(refusal("[[rules]]\nmodules = [\"a\"]\n"), Contains("unknown key rules") && Contains("mean rule?"));
    CHECK_THAT(refusal("rule = 1\n"), Contains("[[rule]]"));
    CHECK_THAT(refusal("rule = [1]\n"), Contains("[[rule]]"));
    CHECK_THAT(refusal("users = 1\n"), Contains("[users]"));
    CHECK_THAT(refusal("[users]\nann = 1\n"), Contains("user \"ann\""));
    CHECK_THAT(refusal("[users]\nann = { tag = [\"x\"] }\n"), Contains("did you mean tags?"));
}

TEST_CASE("a routes file with more rules than the limit is refused", "[config][routes]") {
    std::string text;
    for (int i = 0; i < 10001; ++i) text += "[[rule]]\nmodules=[\"m\"]\ntags=[\"t\"]\n";
    CHECK_THAT(refusal(text), Contains("more than 10000 rules"));
}

TEST_CASE("an overlong keyword is refused", "[config][routes]") {
    const std::string text = "[[rule]]\nmodules = [\"a\"]\nkeywords = [\"" + std::string(257, 'x') + "\"]\n";
    CHECK_THAT(refusal(text), Contains("longer than 256 bytes"));
}

TEST_CASE("a missing routes file is named without its folder", "[config][routes]") {
    const auto routes = read_routes("/no/such/folder/my_routes.toml");
    REQUIRE_FALSE(routes);
    CHECK_THAT(routes.error().message, Contains("my_routes.toml") && !Contains("/no/such"));
}
