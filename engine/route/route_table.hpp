#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "attune/token_event.hpp"

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

/// Rules in force: immutable, a pure function from a query to modules with the reason. Order of kinds:
/// task id, user, tags, keywords, default. Keywords match after NFKC and case folding as substrings, with word
/// boundaries only between letters of scripts that have them; highest priority, then longest keyword, then file order.
class RouteTable {
public:
    RouteTable() = default;
    explicit RouteTable(RouteFile file);

    RouteChoice choose(const RouteQuery& query) const;
    const RouteFile& file() const { return file_; }

private:
    struct Keyword {
        std::string folded;
        std::size_t rule = 0;
    };
    RouteFile file_;
    std::vector<Keyword> keywords_;
};

}  // namespace attune
