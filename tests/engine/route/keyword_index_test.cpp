#include "engine/route/keyword_index.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace attune;

namespace {

using Hit = std::tuple<std::size_t, std::size_t, std::size_t>;  // keyword, begin, end

std::set<Hit> hits(const std::vector<std::string>& keywords, const std::string& text) {
    std::set<Hit> found;
    KeywordIndex(keywords).scan(text, [&](std::size_t keyword, std::size_t begin, std::size_t end) {
        CHECK(found.insert({keyword, begin, end}).second);
    });
    return found;
}

std::set<Hit> hits_by_hand(const std::vector<std::string>& keywords, const std::string& text) {
    std::set<Hit> found;
    for (std::size_t k = 0; k < keywords.size(); ++k) {
        for (std::size_t at = text.find(keywords[k]); at != std::string::npos; at = text.find(keywords[k], at + 1)) {
            found.insert({k, at, at + keywords[k].size()});
        }
    }
    return found;
}

}  // namespace

TEST_CASE("an index without keywords finds nothing", "[engine][route]") {
    CHECK(hits({}, "anything").empty());
    bool found = false;
    KeywordIndex().scan("anything", [&](auto...) { found = true; });
    CHECK_FALSE(found);
}

TEST_CASE("keywords inside keywords are all found", "[engine][route]") {
    CHECK(hits({"he", "her", "hers", "she"}, "ushers") == std::set<Hit>{{0, 2, 4}, {1, 2, 5}, {2, 2, 6}, {3, 1, 4}});
}

TEST_CASE("overlapping occurrences of one keyword are all found", "[engine][route]") {
    CHECK(hits({"aa"}, "aaaa").size() == 3);
}

TEST_CASE("bytes above 127 and NUL are bytes like others", "[engine][route]") {
    const std::vector<std::string> keywords = {std::string("\0a", 2), "\xE4\xBB\xA3"};
    CHECK(hits(keywords, std::string("x\0a\xE4\xBB\xA3", 6)) == std::set<Hit>{{0, 1, 3}, {1, 3, 6}});
}

TEST_CASE("the index finds what a search for each keyword finds", "[engine][route]") {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        const auto word = [&](std::size_t longest) {
            std::string out(1 + random() % longest, 'a');
            for (char& c : out) c = static_cast<char>('a' + random() % 3);
            return out;
        };
        std::set<std::string> distinct;
        for (int i = 0; i < 12; ++i) distinct.insert(word(5));
        const std::vector<std::string> keywords(distinct.begin(), distinct.end());
        const std::string text = word(200);
        INFO(text);
        CHECK(hits(keywords, text) == hits_by_hand(keywords, text));
    }
}
