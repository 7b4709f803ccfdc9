#include "engine/route/route_table.hpp"
#include "engine/route/route_text.hpp"
#include "engine/text/unicode.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace attune;
using Catch::Matchers::Contains;

namespace {

RouteRule rule_for(const std::string& module, int priority = 0) {
    RouteRule rule;
    rule.modules = {{module, 1.0}};
    rule.priority = priority;
    return rule;
}

RouteRule with_regex(const std::string& module, const std::string& pattern, int priority = 0) {
    RouteRule rule = rule_for(module, priority);
    rule.regex = {pattern};
    return rule;
}

RouteRule with_keyword(const std::string& module, const std::string& keyword, int priority = 0) {
    RouteRule rule = rule_for(module, priority);
    rule.keywords = {keyword};
    return rule;
}

RouteTable table_of(std::vector<RouteRule> rules) {
    RouteFile file;
    file.rules = std::move(rules);
    auto compiled = compile_routes(file);
    REQUIRE(compiled);
    return RouteTable(std::move(file), std::move(*compiled));
}

RouteQuery text_query(const std::string& text) {
    RouteQuery query;
    query.text = text;
    return query;
}

std::string refusal(const std::string& pattern) {
    RouteFile file;
    file.rules = {with_regex("a", "fine"), with_regex("b", pattern)};
    const auto compiled = compile_routes(file);
    REQUIRE_FALSE(compiled);
    CHECK(compiled.error().code == Errc::invalid_argument);
    return compiled.error().message;
}

}  // namespace

TEST_CASE("a pattern matches whatever the case and width, unless it says otherwise", "[engine][route][regex]") {
    struct Row {
        const char* pattern;
        const char* text;
        bool matches;
    };
    for (const Row& row : std::initializer_list<Row>{
             {"error \\d{3}", "we saw ERROR 404 today", true},
             {"error \\d{3}", "error 40", false},
             {"error \\d{3}", "ｅｒｒｏｒ　４０４", true},
             {"(?-i)SELECT .* FROM", "select a from b", false},
             {"(?-i)SELECT .* FROM", "SELECT a FROM b", true},
             {"第.{1,6}条", "请看民法典第五百条", true},
             {"^\\s*def ", "  def f(): pass", true},
             {"^\\s*def ", "he said def ", false},
             {"\\bcafé\\b", "un CAFÉ noir", true},
             {"caf\\w$", "un cafe\xCC\x81", true},  // composed before it is searched
         }) {
        INFO(row.pattern << " in " << row.text);
        const RouteChoice choice = table_of({with_regex("m", row.pattern)}).choose(text_query(row.text));
        CHECK(choice.decision.rule == (row.matches ? "regex" : "default"));
        CHECK(choice.patterns_over_limit == 0);
    }
}

TEST_CASE("the decision names the rule and what its pattern found", "[engine][route][regex]") {
    RouteRule named = with_regex("m", "err\\w+ \\d+");
    named.name = "error numbers";
    const RouteChoice choice = table_of({with_regex("a", "zzz"), named}).choose(text_query("An Error 404 came"));
    CHECK(choice.decision.name == "error numbers");
    CHECK(choice.decision.matched == "Error 404");
    CHECK(choice.decision.modules == std::vector<std::string>{"m"});
    CHECK(table_of({with_regex("a", "zzz")}).choose(text_query("zzz")).decision.name == "rule 1");
    const std::string found =
        table_of({with_regex("a", "z+")}).choose(text_query(std::string(500, 'z'))).decision.matched;
    CHECK(found.size() == 64);
}

TEST_CASE("patterns are refused by rule, with the reason", "[engine][route][regex]") {
    CHECK_THAT(refusal("(unclosed"), Contains("rule 2, regex: \"(unclosed\"") && Contains("missing closing"));
    CHECK_THAT(refusal("a*"), Contains("matches an empty text"));
    CHECK_THAT(refusal("(?:(?:abcdef){1,100}){1,1000}b"), Contains("too large"));
    CHECK_THAT(refusal(std::string(2000, 'a')), Contains("longer than 1024 bytes"));
    CHECK_THAT(refusal("\\C"), Contains("rule 2"));
    CHECK_THAT(refusal("a\xFF"), Contains("not UTF-8"));
}

TEST_CASE("a pattern that exceeds its limit is no match, is counted, and leaves the next rule its chance",
          "[engine][route][regex]") {
    const std::string greedy = "(a+)+(a+)+(a+)+$";
    const RouteTable table = table_of({with_regex("slow", greedy), with_regex("next", "aab")});
    const RouteChoice choice = table.choose(text_query(std::string(5000, 'a') + "b"));
    CHECK(choice.decision.modules == std::vector<std::string>{"next"});
    CHECK(choice.patterns_over_limit == 1);

    // After a few of them the text gets no more searches.
    std::vector<RouteRule> slow(RouteTable::kGivenUp, with_regex("slow", greedy));
    slow.push_back(with_regex("next", "aab"));
    const RouteChoice none = table_of(slow).choose(text_query(std::string(5000, 'a') + "b"));
    CHECK(none.decision.rule == "default");
    CHECK(none.patterns_over_limit == RouteTable::kGivenUp);
}

TEST_CASE("keywords and patterns compete by priority, and a keyword goes before a pattern of its own",
          "[engine][route][regex]") {
    const RouteTable table = table_of(
        {with_regex("high", "contract \\d+", 5), with_keyword("word", "contract"), with_regex("low", "contract")});
    CHECK(table.choose(text_query("contract 12")).decision.modules[0] == "high");
    CHECK(table.choose(text_query("contract")).decision.modules[0] == "word");
    CHECK(table.choose(text_query("subcontracting")).decision.modules[0] == "low");
    const RouteTable both = table_of({with_keyword("word", "contract", -1), with_regex("pattern", "contract")});
    CHECK(both.choose(text_query("contract")).decision.rule == "regex");
}

TEST_CASE("words are counted by runs of letters, and one by one where scripts put no spaces", "[engine][route]") {
    struct Row {
        const char* text;
        std::vector<std::size_t> ends;
    };
    for (const Row& row : std::initializer_list<Row>{
             {"", {}},
             {"one two", {3, 7}},
             {"  don't, x", {5, 7, 10}},
             {"法条 is 1", {3, 6, 9, 11}},
             {"a_b-c", {3, 5}},
         }) {
        INFO(row.text);
        CHECK(word_ends(row.text, 100) == row.ends);
        if (!row.ends.empty()) CHECK(word_ends(row.text, 1) == std::vector<std::size_t>{row.ends[0]});
    }
    CHECK(word_ends("one two", 0).empty());
}

TEST_CASE("the short way to a comparable text gives what the long way gives", "[engine][route]") {
    // A Tamil letter sends a text the long way and is left alone by it.
    const std::string detour = "\u0B95";
    for (const std::string text :
         {"Plain ASCII, Z[`{ @A", "请看《民法典》第５００条，ＡＢＣｚ！", "ひらがなカタカナ、テスト。한국어　띄어쓰기",
          "“Quoted” — ‘it’s’", "L'Œuvre où l'été… ½ ﬁn ™", "СЪЕШЬ ещё Ёлку, Straße İSTANBUL ΟΔΥΣΣΕΥΣ",
          "‘e\u0301’ É\u0302 й и\u0306", "I \u2764\uFE0F it \U0001F600\U0001F3FD, so\u00ADft"}) {
        INFO(text);
        CHECK(comparable(text) + detour == comparable(text + detour));
        CHECK(searchable(text) + detour == searchable(text + detour));
    }
    CHECK(comparable("\xC3 \xF0\x9F\x98 \xA9\xE2\x80") == "\uFFFD \uFFFD \uFFFD\uFFFD");
    // Every character of the short way, one by one.
    for (char32_t c = 1; c < 0x20000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string one;
        append_utf8(one, c);
        const std::string text = "A" + one + "b";
        if (comparable(text) + detour != comparable(text + detour) ||
            searchable(text) + detour != searchable(text + detour))
            FAIL("U+" << std::hex << static_cast<std::uint32_t>(c));
    }
}

TEST_CASE("neighbours of every kind have the same say on the short way as on the long way", "[engine][route]") {
    const std::string detour = "\u0B95";
    const std::vector<char32_t> some{'a',    'E',    ' ',    0x00AD, 0x200D, 0x00E9,  0x0130, 0x00DF, 0x00BD,
                                     0x2026, 0x03A3, 0x0451, 0x0301, 0x0345, 0x0307,  0x0915, 0x0928, 0x0930,
                                     0x093C, 0x093F, 0x094D, 0x0902, 0x0951, 0x0952,  0x0958, 0x0E19, 0x0E33,
                                     0x0E34, 0x0E38, 0x0E3A, 0x0E49, 0x0E4D, 0x4E00,  0x304B, 0x3099, 0xAC00,
                                     0x11A8, 0xFF21, 0xFF76, 0x0645, 0x064B, 0x1F600, 0x212B};
    std::minstd_rand random(7);
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (std::size_t n = 2 + random() % 6; n > 0; --n) append_utf8(text, some[random() % some.size()]);
        if (comparable(text) + detour != comparable(text + detour) ||
            searchable(text) + detour != searchable(text + detour))
            FAIL("text " << i << ": " << text);
    }
}

TEST_CASE("a rule with first_tokens looks at the text's beginning only", "[engine][route]") {
    RouteRule early = with_keyword("early", "translate");
    early.first_tokens = 3;
    RouteRule pattern = with_regex("pattern", "sql \\w+");
    pattern.first_tokens = 4;
    const RouteTable table = table_of({early, pattern, with_keyword("anywhere", "please")});
    const auto module_for = [&](const std::string& text) {
        const RouteChoice choice = table.choose(text_query(text));
        return choice.modules.empty() ? std::string() : choice.modules[0].name;
    };
    CHECK(module_for("please, now translate this") == "early");
    CHECK(module_for("would you please translate") == "anywhere");
    CHECK(module_for("would you now translate this").empty());
    CHECK(module_for("请你翻译 translate").empty());
    CHECK(module_for("a an sql query") == "pattern");
    CHECK(module_for("a an the sql query").empty());

    // The same keyword elsewhere: the rule without the bound still sees it.
    const RouteTable two = table_of({early, with_keyword("late", "translate", -1)});
    CHECK(two.choose(text_query("one two three four translate")).modules[0].name == "late");
    CHECK(two.choose(text_query("one translate")).modules[0].name == "early");
}

TEST_CASE("what could not be had is passed over for the next choice, down to the default", "[engine][route]") {
    RouteFile file;
    RouteRule by_task = rule_for("task");
    by_task.task_ids = {"t"};
    by_task.name = "tasks";
    file.rules = {by_task, with_keyword("word", "contract"), with_regex("pattern", "contract")};
    file.users = {{"ann", {}, {{"anns", 1.0}}}};
    file.default_modules = {{"fallback", 1.0}};
    auto compiled = compile_routes(file);
    REQUIRE(compiled);
    const RouteTable table(file, std::move(*compiled));
    RouteQuery query = text_query("a contract");
    query.task_id = "t";
    query.user = "ann";
    std::vector<std::string> kinds;
    std::vector<std::string> modules;
    RouteChoice choice;
    do {
        choice = table.choose(query);
        kinds.push_back(choice.decision.rule);
        modules.push_back(choice.modules.at(0).name);
        query.passed_over.push_back(choice.number);
    } while (!choice.is_last && kinds.size() < 10);
    CHECK(kinds == std::vector<std::string>{"task_id", "user", "keyword", "regex", "default"});
    CHECK(modules == std::vector<std::string>{"task", "anns", "word", "pattern", "fallback"});
    CHECK(choice.decision.skipped == std::vector<std::string>{"tasks", "users: ann", "rule 2", "rule 3"});
}

TEST_CASE("a user's modules are those of their rules, preferences and tags", "[engine][route]") {
    RouteFile file;
    RouteRule by_user = rule_for("a");
    by_user.users = {"ann"};
    RouteRule by_tag = rule_for("c");
    by_tag.tags = {"Legal"};
    RouteRule owned = rule_for("secret");
    owned.users = {"bob"};
    owned.owner = "bob-key";
    file.rules = {by_user, by_tag, owned};
    file.users = {{"ann", {"legal"}, {{"b", 1.0}, {"a", 0.5}}}};
    const RouteTable table(file);
    CHECK(table.modules_of_user("ann", "") == std::vector<std::string>{"a", "b", "c"});
    CHECK(table.modules_of_user("bob", "").empty());
    CHECK(table.modules_of_user("bob", "bob-key") == std::vector<std::string>{"secret"});
    CHECK(table.modules_of_user("nobody", "").empty());
}
