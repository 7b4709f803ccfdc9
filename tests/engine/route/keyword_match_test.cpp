#include "engine/route/route_table.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>

using namespace attune;

namespace {

bool matches(const std::string& keyword, const std::string& text) {
    RouteFile file;
    RouteRule rule;
    rule.modules = {{"m", 1.0}};
    rule.keywords = {keyword};
    file.rules.push_back(rule);
    RouteQuery query;
    query.text = text;
    return RouteTable(file).choose(query).decision.rule == "keyword";
}

struct Case {
    const char* keyword;
    const char* text;
    bool matches;
};

void check_all(std::initializer_list<Case> cases) {
    for (const Case& c : cases) {
        INFO(c.keyword << " in " << c.text);
        CHECK(matches(c.keyword, c.text) == c.matches);
    }
}

}  // namespace

TEST_CASE("keywords of spaced scripts match whole words only", "[engine][route]") {
    check_all({
        {"code", "my code here", true},
        {"code", "code", true},
        {"code", "(code)", true},
        {"code", "decode", false},
        {"code", "codes", false},
        {"code", "decode the code", true},
        {"art", "start party", false},
        {"unit test", "a unit test, please", true},
        {"unit test", "a unit testing plan", false},
        {"суд", "это суд", true},
        {"суд", "сосуд", false},
        {"νόμος", "ο νόμος", true},
        {"νόμος", "ανόμος", false},
        {"حق", "هذا حق", true},
        {"حق", "حقيقة", false},
        {"חוק", "חוק חדש", true},
        {"חוק", "חוקים", false},
        {"कानून", "यह कानून है", true},
        {"कानून", "कानूनी", false},
    });
}

TEST_CASE("digits, underscores and punctuation end a word", "[engine][route]") {
    check_all({
        {"python", "python3", true},
        {"python", "in python3.11", true},
        {"code", "my_code", true},
        {"code", "code_review", true},
        {"code", "source-code", true},
        {"c++", "write c++ here", true},
        {"c++", "c++17", true},
        {"404", "a 404 error", true},
        {"#define", "x#define y", true},
    });
}

TEST_CASE("keywords of scripts without spaces match anywhere", "[engine][route]") {
    check_all({
        {"代码", "请写一段代码。", true},
        {"代码", "写代码吧", true},
        {"法条", "依据法条判断", true},
        {"関数", "この関数は", true},
        {"コード", "ソースコードを書く", true},
        {"กฎหมาย", "ตามกฎหมายไทย", true},
        {"코드", "코드를 작성해", true},
        {"코드", "소스코드", true},
        {"代码", "代 码", false},
        {"代码", "替代品", false},
    });
}

TEST_CASE("mixed scripts have no boundary where one of them has none", "[engine][route]") {
    check_all({
        {"code", "写code吧", true},
        {"python", "用python写", true},
        {"python", "用pythonic写", false},
        {"代码", "my代码base", true},
        {"code", "код-code", true},
        {"code", "кодcode", false},
        {"api接口", "调用API接口", true},
        {"api接口", "rapi接口", false},
        {"接口api", "接口apis", false},
    });
}

TEST_CASE("width, case and ligatures do not matter", "[engine][route]") {
    check_all({
        {"code", "CODE", true},
        {"CODE", "code", true},
        {"code", "ｃｏｄｅ", true},
        {"ＣＯＤＥ", "my Code", true},
        {"code", "ｄｅｃｏｄｅ", false},
        {"ガス", "ｶﾞｽ会社", true},
        {"file", "ﬁle", true},
        {"kg", "５㎏", true},
        {"代码", "代　码", false},
        {"42", "４２", true},
        {"h2o", "H₂O", true},
    });
}

TEST_CASE("German sharp s and capital sharp s are ss", "[engine][route]") {
    check_all({
        {"straße", "die STRASSE", true},
        {"strasse", "eine Straße", true},
        {"straße", "STRAẞE", true},
        {"straße", "straßen", false},
        {"mass", "Maß", true},
    });
}

TEST_CASE("Turkish dotted and dotless i follow Unicode's plain case folding", "[engine][route]") {
    check_all({
        {"İstanbul", "İSTANBUL", true},
        {"istanbul", "ISTANBUL", true},
        {"ısparta", "ısparta ili", true},
        {"ısparta", "isparta", false},
        // U+0130 folds to i and a dot above, which is another character than i.
        {"istanbul", "İstanbul", false},
    });
}

TEST_CASE("composed and combining accents are equal, and an accent is not cut off", "[engine][route]") {
    check_all({
        {"café", "cafe\u0301", true},
        {"cafe\u0301", "un café", true},
        {"cafe", "café", false},
        {"cafe", "cafe\u0301", false},
        {"cafe", "cafe\u0331", false},
        {"ö", "o\u0308", true},
        {"क", "कि", false},
        {"가", "\u1100\u1161", true},
        {"ば", "\u306F\u3099", true},
        {"は", "\u306F\u3099", false},
    });
}

TEST_CASE("Greek sigmas are one letter", "[engine][route]") {
    check_all({{"ΝΌΜΟΣ", "νόμος", true}, {"νόμος", "ΝΌΜΟΣ", true}});
}

TEST_CASE("emoji match whatever selectors, joiners and neighbours they have", "[engine][route]") {
    check_all({
        {"😀", "so 😀!", true},
        {"😀", "word😀word", true},
        {"❤️", "I ❤ it", true},
        {"❤", "I ❤\uFE0F it", true},
        {"👍", "👍🏽", true},
        {"👩\u200D💻", "ask 👩\u200D💻 now", true},
        {"🇩🇪", "in 🇩🇪", true},
        {"😀", "😁", false},
    });
}

TEST_CASE("invisible characters do not hide a word", "[engine][route]") {
    check_all({
        {"code", "co\u200Bde", true},
        {"code", "co\u00ADde", true},
        {"代码", "代\u200B码", true},
        {"code", "\uFEFFcode", true},
        {"code", "de\u200Bcode", false},
    });
}

TEST_CASE("a keyword of invisible characters matches nothing", "[engine][route]") {
    check_all({{"\u200B", "any text", false}, {"\u00AD\uFE0F", "any text", false}});
}

TEST_CASE("text that is no UTF-8 is searched as far as it is readable", "[engine][route]") {
    CHECK(matches("code", "\xFF\xFE code \xC0"));
    CHECK_FALSE(matches("code", "\xFF\xFE"));
}

TEST_CASE("a NUL byte is an ordinary character", "[engine][route]") {
    CHECK(matches("code", std::string("\0code\0", 6)));
}

TEST_CASE("only the beginning of a very long text is searched", "[engine][route]") {
    const std::string filler(RouteTable::kScannedBytes - 10, ' ');
    CHECK(matches("code", filler + "code"));
    CHECK_FALSE(matches("code", filler + filler + "code"));
    // The cut may fall into the middle of a character.
    for (int shift = 0; shift < 4; ++shift) {
        std::string text(static_cast<std::size_t>(shift), 'x');
        while (text.size() < 2 * RouteTable::kScannedBytes) text += "\xE7\xA0\x81";
        CHECK(matches("码", text));
    }
}
