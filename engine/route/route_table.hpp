#pragma once

#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "attune/token_event.hpp"
#include "engine/route/classifier.hpp"
#include "engine/route/keyword_index.hpp"
#include "engine/route/route_pattern.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
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
    std::string text;                           ///< last user message, or the prompt
    std::vector<std::size_t> passed_over = {};  ///< RouteChoice::number of those whose modules could not be had
};

struct RouteChoice {
    RouteDecision decision;
    std::vector<WeightedModule> modules;
    std::size_t number = 0;       ///< which rule, preference, classifier or default it was, within its table
    bool is_last = false;         ///< the default: nothing comes after it
    int patterns_over_limit = 0;  ///< searches that were given up
};

/// What a routes file's words stand for: made where the file is read, shared by the tables made from it.
struct CompiledRoutes {
    std::vector<std::vector<RoutePattern>> patterns;  ///< one list per rule of the file
    std::shared_ptr<Classifier> classifier;           ///< null: none
};

/// Checks and compiles; errors name the rule and the pattern, or the classifier's file.
Result<CompiledRoutes> compile_routes(const RouteFile& file);

/// Rules in force: a function from a query to modules with the reason; any thread. Immutable but for a classifier that
/// learns. Order of kinds: task id, user, tags, keywords and patterns, classifier, default.
/// Task ids and users are compared exactly, tags after NFKC and case folding.
/// Keywords match after NFKC and case folding as substrings, with word boundaries only between letters of scripts that
/// have them; patterns search the NFKC text. Highest priority, then keywords before patterns, then longest keyword (in
/// characters), then file order. A rule with an owner is seen by the key of that name only. [users] applies to the
/// key's name and to the `user` field: its tags join the request's, its modules are used when no rule for the user
/// matched. Choices of `passed_over` are left out, so that asking again gives the next one.
class RouteTable {
public:
    /// Only so much of a text is searched, from its beginning.
    static constexpr std::size_t kScannedBytes = 64u << 10;
    static constexpr std::size_t kPatternBytes = 16u << 10;  ///< by patterns
    /// After so many searches given up, a text gets no more: together they stay below a millisecond or ten.
    static constexpr int kGivenUp = 4;

    RouteTable() = default;
    /// Rules beyond `compiled.patterns` (those of manifests) have no patterns.
    explicit RouteTable(RouteFile file, CompiledRoutes compiled = {});

    RouteChoice choose(const RouteQuery& query) const;
    const RouteFile& file() const { return file_; }
    const std::shared_ptr<Classifier>& classifier() const { return compiled_.classifier; }
    bool learns() const { return compiled_.classifier && file_.classifier && file_.classifier->online; }

    /// What a user's requests get by user or tags, whoever's the modules are; at most kUserModules names.
    std::vector<std::string> modules_of_user(const std::string& user, const std::string& caller) const;
    static constexpr std::size_t kUserModules = 64;

private:
    /// Rules that name a word, best first: by priority, then file order.
    using RulesByWord = std::map<std::string, std::vector<std::size_t>, std::less<>>;

    struct Keyword {
        std::string word;            ///< folded
        std::size_t characters = 0;  ///< of it
        std::vector<std::size_t> rules;
    };
    struct Found {
        const RouteRule* rule = nullptr;
        std::string matched;
        bool by_pattern = false;
    };

    bool may_use(const RouteRule& rule, const RouteQuery& query) const;
    const RouteRule* first_allowed(const RulesByWord& words, std::string_view word, const RouteQuery& query) const;
    const RouteRule* better(const RouteRule* one, const RouteRule* other) const;
    std::vector<const UserPreference*> preferences_of(const RouteQuery& query) const;
    Found by_user(const RouteQuery& query) const;
    Found by_tag(const RouteQuery& query) const;
    Found by_keyword(const RouteQuery& query, std::string_view text) const;
    /// A pattern's rule that goes before `best`.
    Found by_pattern(const RouteQuery& query, const RouteRule* best, int& over_limit) const;
    std::optional<RouteChoice> by_classifier(const RouteQuery& query, std::string_view text) const;
    RouteChoice chosen(const char* kind, const Found& found) const;
    RouteChoice decide(const RouteQuery& query) const;
    std::string label_of(std::size_t number) const;

    RouteFile file_;
    CompiledRoutes compiled_;
    RulesByWord task_ids_;
    RulesByWord tags_;
    RulesByWord users_;
    std::map<std::string, std::size_t, std::less<>> preferences_;  ///< user -> place in file_.users
    std::vector<Keyword> keywords_;                                ///< as the index numbers them
    KeywordIndex index_;
    std::vector<std::size_t> with_patterns_;  ///< rules, best first
    std::size_t most_tokens_ = 0;             ///< largest first_tokens
};

}  // namespace attune
