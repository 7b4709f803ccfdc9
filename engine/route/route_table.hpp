#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "attune/token_event.hpp"
#include "engine/route/keyword_index.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// What a rule may look at.
struct RouteQuery {
    std::string task_id;
    std::string user;
    std::string caller;  ///< the key's name
    std::vector<std::string> tags;
    std::string text;  ///< last user message, or the prompt
};

struct RouteChoice {
    RouteDecision decision;
    std::vector<WeightedModule> modules;
};

/// Rules in force: immutable, a pure function from a query to modules with the reason; any thread. Order of kinds:
/// task id, user, tags, keywords, default. Task ids and users are compared exactly, tags after NFKC and case folding.
/// Keywords match after NFKC and case folding as substrings, with word
/// boundaries only between letters of scripts that have them; highest priority, then longest keyword (in characters),
/// then file order. A rule with an owner is seen by the key of that name only. [users] applies to the key's name and
/// to the `user` field: its tags join the request's, its modules are used when no rule for the user matched.
class RouteTable {
public:
    /// Only so much of a text is searched for keywords, from its beginning.
    static constexpr std::size_t kScannedBytes = 64u << 10;

    RouteTable() = default;
    explicit RouteTable(RouteFile file);

    RouteChoice choose(const RouteQuery& query) const;
    const RouteFile& file() const { return file_; }

private:
    /// Rules that name a word, best first: by priority, then file order.
    using RulesByWord = std::map<std::string, std::vector<std::size_t>, std::less<>>;

    struct Keyword {
        std::size_t characters = 0;  ///< after folding
        std::vector<std::size_t> rules;
    };

    const RouteRule* first_allowed(const RulesByWord& words, std::string_view word, const RouteQuery& query) const;
    const RouteRule* better(const RouteRule* one, const RouteRule* other) const;
    const RouteRule* by_keyword(const RouteQuery& query) const;

    RouteFile file_;
    RulesByWord task_ids_;
    RulesByWord tags_;
    RulesByWord users_;
    std::map<std::string, std::size_t, std::less<>> preferences_;  ///< user -> place in file_.users
    std::vector<Keyword> keywords_;                                ///< as the index numbers them
    KeywordIndex index_;
};

}  // namespace attune
