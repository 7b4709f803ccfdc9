#include "engine/route/route_table.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

using namespace attune;

namespace {

RouteRule rule_for(const std::string& module) {
    RouteRule rule;
    rule.modules = {{module, 1.0}};
    return rule;
}

RouteRule with_keywords(const std::string& module, std::vector<std::string> keywords, int priority = 0) {
    RouteRule rule = rule_for(module);
    rule.keywords = std::move(keywords);
    rule.priority = priority;
    return rule;
}

RouteTable table_of(std::vector<RouteRule> rules) {
    RouteFile file;
    file.rules = std::move(rules);
    return RouteTable(std::move(file));
}

RouteQuery text_query(const std::string& text) {
    RouteQuery query;
    query.text = text;
    return query;
}

std::string module_for(const RouteTable& table, const RouteQuery& query) {
    const RouteChoice choice = table.choose(query);
    REQUIRE(choice.modules.size() == choice.decision.modules.size());
    return choice.modules.empty() ? "" : choice.modules[0].name;
}

}  // namespace

TEST_CASE("an empty table sends everything to the base by default", "[engine][route]") {
    const RouteChoice choice = RouteTable().choose(text_query("anything"));
    CHECK(choice.decision.rule == "default");
    CHECK(choice.decision.modules.empty());
    CHECK(choice.modules.empty());
}

TEST_CASE("what no rule matches gets the default modules with their weights", "[engine][route]") {
    RouteFile file;
    file.rules = {with_keywords("code", {"code"})};
    file.default_modules = {{"sentiment", 0.5}, {"style", 2.0}};
    const RouteChoice choice = RouteTable(file).choose(text_query("how are you"));
    CHECK(choice.decision.rule == "default");
    CHECK(choice.decision.modules == std::vector<std::string>{"sentiment", "style"});
    REQUIRE(choice.modules.size() == 2);
    CHECK(choice.modules[0].weight == 0.5);
    CHECK(choice.modules[1].weight == 2.0);
}

TEST_CASE("task id goes before user, user before tags, tags before keywords", "[engine][route]") {
    RouteRule by_task = rule_for("task");
    by_task.task_ids = {"t"};
    RouteRule by_user = rule_for("user");
    by_user.users = {"ann"};
    RouteRule by_tag = rule_for("tag");
    by_tag.tags = {"x"};
    by_tag.priority = 100;
    const RouteTable table = table_of({with_keywords("keyword", {"word"}, 100), by_tag, by_user, by_task});

    RouteQuery query = text_query("a word");
    CHECK(table.choose(query).decision.rule == "keyword");
    query.tags = {"x"};
    CHECK(table.choose(query).decision.rule == "tag");
    query.user = "ann";
    CHECK(table.choose(query).decision.rule == "user");
    query.task_id = "t";
    CHECK(table.choose(query).decision.rule == "task_id");
    CHECK(module_for(table, query) == "task");
}

TEST_CASE("an unknown task id, user or tag falls through to the next kind", "[engine][route]") {
    const RouteTable table = table_of({with_keywords("k", {"word"})});
    RouteQuery query = text_query("a word");
    query.task_id = "nobody's";
    query.user = "nobody";
    query.caller = "key";
    query.tags = {"none"};
    CHECK(table.choose(query).decision.rule == "keyword");
}

TEST_CASE("task ids are compared exactly", "[engine][route]") {
    RouteRule rule = rule_for("m");
    rule.task_ids = {"Legal"};
    const RouteTable table = table_of({rule});
    RouteQuery query;
    query.task_id = "legal";
    CHECK(table.choose(query).decision.rule == "default");
    query.task_id = "Legal";
    CHECK(table.choose(query).decision.rule == "task_id");
}

TEST_CASE("tags are compared whole, whatever their case, width and composition", "[engine][route]") {
    struct Case {
        const char* rule;
        const char* asked;
        bool same;
    };
    for (const Case& c : std::initializer_list<Case>{
             {"law", "Law", true},
             {"law", "ｌａｗ", true},
             {"LAW", "law", true},
             {"law", "laws", false},
             {"law", "la w", false},
             {"法条", "法条", true},
             {"法条", "法條", false},
             {"ガス", "ｶﾞｽ", true},
             {"が", "\u304B\u3099", true},
             {"が", "か", false},
             {"café", "cafe\u0301", true},
             {"café", "cafe", false},
             {"straße", "STRASSE", true},
             {"한국", "\u1112\u1161\u11AB\u1100\u116E\u11A8", true},
             {"代码Code", "代码ＣＯＤＥ", true},
             {"код", "КОД", true},
             {"кoд", "код", false},  // the middle letter of one is Latin
             {"①", "1", true},
             {"law", "l\u200Baw", true},
             {"law", "", false},
             {"law", "\xFF", false},
         }) {
        INFO(c.rule << " and " << c.asked);
        RouteRule rule = rule_for("m");
        rule.tags = {c.rule};
        RouteQuery query;
        query.tags = {c.asked};
        CHECK((table_of({rule}).choose(query).decision.rule == "tag") == c.same);
    }
}

TEST_CASE("the highest priority wins, then the longest keyword, then the file's order", "[engine][route]") {
    CHECK(module_for(table_of({with_keywords("a", {"long keyword"}), with_keywords("b", {"keyword"}, 1)}),
                     text_query("a long keyword")) == "b");
    CHECK(module_for(table_of({with_keywords("a", {"keyword"}), with_keywords("b", {"long keyword"})}),
                     text_query("a long keyword")) == "b");
    CHECK(module_for(table_of({with_keywords("a", {"first"}), with_keywords("b", {"other"})}),
                     text_query("other first")) == "a");
    CHECK(module_for(table_of({with_keywords("a", {"same"}), with_keywords("b", {"same"})}), text_query("same")) ==
          "a");
    CHECK(module_for(table_of({with_keywords("a", {"same"}, -5), with_keywords("b", {"same"}, -4)}),
                     text_query("same")) == "b");
}

TEST_CASE("keyword length is counted in characters, not in bytes", "[engine][route]") {
    // Two Han characters are six bytes, but shorter than the four letters.
    CHECK(module_for(table_of({with_keywords("han", {"代码"}), with_keywords("latin", {"code"})}),
                     text_query("code 代码")) == "latin");
}

TEST_CASE("of several tags the rule with the highest priority wins, whatever their order", "[engine][route]") {
    RouteRule low = rule_for("low");
    low.tags = {"a"};
    RouteRule high = rule_for("high");
    high.tags = {"b"};
    high.priority = 1;
    const RouteTable table = table_of({low, high});
    RouteQuery query;
    query.tags = {"a", "b"};
    CHECK(module_for(table, query) == "high");
    query.tags = {"b", "a"};
    CHECK(module_for(table, query) == "high");
}

TEST_CASE("a rule may name several modules", "[engine][route]") {
    RouteRule rule = with_keywords("code", {"review"});
    rule.modules.push_back({"legal", -0.5});
    const RouteChoice choice = table_of({rule}).choose(text_query("a review"));
    CHECK(choice.decision.modules == std::vector<std::string>{"code", "legal"});
    CHECK(choice.modules.at(1).weight == -0.5);
}

TEST_CASE("a rule without modules sends its matches to the base", "[engine][route]") {
    RouteRule rule;
    rule.keywords = {"plain"};
    RouteFile file;
    file.rules = {rule};
    file.default_modules = {{"sentiment", 1.0}};
    const RouteChoice choice = RouteTable(file).choose(text_query("plain please"));
    CHECK(choice.decision.rule == "keyword");
    CHECK(choice.modules.empty());
}

TEST_CASE("a rule with an owner is seen by its owner's key only", "[engine][route]") {
    RouteRule owned = with_keywords("secret", {"notes"}, 10);
    owned.owner = "ann-key";
    owned.task_ids = {"t"};
    owned.tags = {"x"};
    owned.users = {"ann"};
    const RouteTable table = table_of({owned, with_keywords("public", {"notes"})});

    RouteQuery query = text_query("my notes");
    CHECK(module_for(table, query) == "public");
    query.caller = "bob-key";
    query.task_id = "t";
    query.tags = {"x"};
    query.user = "ann";
    CHECK(module_for(table, query) == "public");
    // The user field gives no rights, even when it says the key's name.
    query.user = "ann-key";
    CHECK(module_for(table, query) == "public");

    query = text_query("my notes");
    query.caller = "ann-key";
    CHECK(module_for(table, query) == "secret");
}

TEST_CASE("a rule for a user is found by the user field and by the key's name", "[engine][route]") {
    RouteRule rule = rule_for("m");
    rule.users = {"ann"};
    const RouteTable table = table_of({rule});
    RouteQuery query;
    query.user = "ann";
    CHECK(table.choose(query).decision.rule == "user");
    query.user.clear();
    query.caller = "ann";
    CHECK(table.choose(query).decision.rule == "user");
}

TEST_CASE("a user's preferred modules are used when no rule names the user", "[engine][route]") {
    RouteFile file;
    file.users = {{"ann", {}, {{"legal", 1.0}}}};
    RouteQuery query = text_query("anything");
    query.user = "ann";
    CHECK(RouteTable(file).choose(query).decision.rule == "user");
    CHECK(module_for(RouteTable(file), query) == "legal");

    RouteRule rule = rule_for("rule");
    rule.users = {"ann"};
    file.rules = {rule};
    CHECK(module_for(RouteTable(file), query) == "rule");
}

TEST_CASE("the key's preference goes before the user field's", "[engine][route]") {
    RouteFile file;
    file.users = {{"ann", {}, {{"for-ann", 1.0}}}, {"bob-key", {}, {{"for-bob", 1.0}}}};
    RouteQuery query;
    query.user = "ann";
    query.caller = "bob-key";
    CHECK(module_for(RouteTable(file), query) == "for-bob");
}

TEST_CASE("a user's tags join the request's own", "[engine][route]") {
    RouteRule rule = rule_for("legal");
    rule.tags = {"law"};
    RouteFile file;
    file.rules = {rule};
    file.users = {{"ann", {"law"}, {}}};
    RouteQuery query = text_query("anything");
    query.user = "ann";
    const RouteChoice choice = RouteTable(file).choose(query);
    CHECK(choice.decision.rule == "tag");
    CHECK(choice.decision.modules == std::vector<std::string>{"legal"});
}

TEST_CASE("a copied table chooses as the first one", "[engine][route]") {
    RouteTable copy;
    {
        const RouteTable table = table_of({with_keywords("code", {"code"})});
        copy = table;
    }
    CHECK(module_for(copy, text_query("some code")) == "code");
    CHECK(copy.file().rules.size() == 1);
}

TEST_CASE("the right one of ten thousand keywords is found in a long text", "[engine][route]") {
    std::vector<RouteRule> rules;
    for (int i = 0; i < 10000; ++i) {
        rules.push_back(with_keywords("m" + std::to_string(i), {"keyword " + std::to_string(i) + " end"}));
    }
    const RouteTable table = table_of(std::move(rules));
    std::string text;
    while (text.size() < 60000) text += "keyword 12 keyword 345 ordinary words in between ";
    text += "keyword 9876 end";
    CHECK(module_for(table, text_query(text)) == "m9876");
}
