#include "engine/route/route_table.hpp"

#include "engine/route/route_text.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace attune {
namespace {

constexpr std::size_t kShownBytes = 64;  ///< of what a pattern matched

/// Whether a neighbour of this kind makes two characters one word. Digits and "_" do not: "python" is in "python3".
/// Korean puts spaces, but glues its particles to the word, so a keyword must match in front of them.
bool joins_words(char32_t c) {
    const bool hangul = (c >= 0x1100 && c <= 0x11FF) || (c >= 0x3130 && c <= 0x318F) || (c >= 0xA960 && c <= 0xA97F) ||
                        (c >= 0xAC00 && c <= 0xD7FF);
    return !hangul && (is_letter(c) || is_mark(c)) && is_spaced_script_letter(c);
}

bool is_whole_word(std::string_view text, std::size_t begin, std::size_t end) {
    if (end < text.size()) {
        const char32_t after = code_point_at(text, end).value;
        // A mark belongs to the last character of the match and makes it another one.
        if (is_mark(after)) return false;
        if (joins_words(after) && joins_words(code_point_before(text, end).value)) return false;
    }
    if (begin > 0 && joins_words(code_point_before(text, begin).value) &&
        joins_words(code_point_at(text, begin).value)) {
        return false;
    }
    return true;
}

/// How far into the text a rule looks.
std::size_t reach_of(const RouteRule& rule, const std::vector<std::size_t>& ends, std::size_t bytes) {
    const auto words = static_cast<std::size_t>(rule.first_tokens);
    return words == 0 || words > ends.size() ? bytes : ends[words - 1];
}

bool contains(const std::vector<std::size_t>& numbers, std::size_t number) {
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

Result<CompiledRoutes> compile_routes(const RouteFile& file) {
    CompiledRoutes compiled;
    compiled.patterns.resize(file.rules.size());
    for (std::size_t rule = 0; rule < file.rules.size(); ++rule) {
        for (const std::string& text : file.rules[rule].regex) {
            auto pattern = RoutePattern::compile(text);
            if (!pattern)
                return make_error(Errc::invalid_argument, "rule " + std::to_string(rule + 1) + ", regex: \"" +
                                                              std::string(beginning_of(text, kShownBytes)) + "\" " +
                                                              pattern.error().message);
            compiled.patterns[rule].push_back(std::move(*pattern));
        }
    }
    if (!file.classifier) return compiled;
    auto classifier = Classifier::open(file.classifier->file);
    if (!classifier) return classifier.error();
    compiled.classifier = std::make_shared<Classifier>(std::move(*classifier));
    return compiled;
}

RouteTable::RouteTable(RouteFile file, CompiledRoutes compiled)
    : file_(std::move(file)), compiled_(std::move(compiled)) {
    compiled_.patterns.resize(file_.rules.size());
    const auto order = [this](std::size_t one, std::size_t other) {
        return std::make_tuple(-file_.rules[one].priority, one) < std::make_tuple(-file_.rules[other].priority, other);
    };
    const auto collect = [&](RulesByWord& words, auto list_of) {
        for (std::size_t rule = 0; rule < file_.rules.size(); ++rule) {
            for (const std::string& word : list_of(file_.rules[rule])) words[word].push_back(rule);
        }
        for (auto& [word, rules] : words) std::sort(rules.begin(), rules.end(), order);
    };
    collect(
        task_ids_, [](const RouteRule& rule) -> const auto& { return rule.task_ids; });
    collect(tags_, [](const RouteRule& rule) {
        std::vector<std::string> tags;
        for (const std::string& tag : rule.tags) tags.push_back(comparable(tag));
        return tags;
    });
    collect(
        users_, [](const RouteRule& rule) -> const auto& { return rule.users; });
    for (std::size_t i = 0; i < file_.users.size(); ++i) preferences_.emplace(file_.users[i].user, i);

    RulesByWord folded;
    collect(folded, [](const RouteRule& rule) {
        std::vector<std::string> keywords;
        for (const std::string& keyword : rule.keywords) {
            // A keyword of invisible characters only would match everywhere.
            if (std::string word = comparable(keyword); !word.empty()) keywords.push_back(std::move(word));
        }
        return keywords;
    });
    std::vector<std::string> sorted;
    for (auto& [word, rules] : folded) {
        sorted.push_back(word);
        keywords_.push_back({word, count_code_points(word), std::move(rules)});
    }
    index_ = KeywordIndex(sorted);

    for (std::size_t rule = 0; rule < file_.rules.size(); ++rule) {
        if (!compiled_.patterns[rule].empty()) with_patterns_.push_back(rule);
        most_tokens_ = std::max(most_tokens_, static_cast<std::size_t>(file_.rules[rule].first_tokens));
    }
    std::sort(with_patterns_.begin(), with_patterns_.end(), order);
}

std::string RouteTable::label_of(std::size_t number) const {
    if (number < file_.rules.size()) {
        const std::string& name = file_.rules[number].name;
        return name.empty() ? "rule " + std::to_string(number + 1) : name;
    }
    number -= file_.rules.size();
    if (number < file_.users.size()) return "users: " + file_.users[number].user;
    return number == file_.users.size() ? "classifier" : "default";
}

bool RouteTable::may_use(const RouteRule& rule, const RouteQuery& query) const {
    if (!rule.owner.empty() && rule.owner != query.caller) return false;
    return !contains(query.passed_over, static_cast<std::size_t>(&rule - file_.rules.data()));
}

const RouteRule* RouteTable::first_allowed(const RulesByWord& words, std::string_view word,
                                           const RouteQuery& query) const {
    const auto found = words.find(word);
    if (word.empty() || found == words.end()) return nullptr;
    for (const std::size_t rule : found->second)
        if (may_use(file_.rules[rule], query)) return &file_.rules[rule];
    return nullptr;
}

const RouteRule* RouteTable::better(const RouteRule* one, const RouteRule* other) const {
    if (one == nullptr || other == nullptr) return one == nullptr ? other : one;
    // Rules lie in file order, so the lower address is the earlier one.
    return std::make_tuple(-one->priority, one) <= std::make_tuple(-other->priority, other) ? one : other;
}

/// The key's name says more than the `user` field, which anyone may write.
std::vector<const UserPreference*> RouteTable::preferences_of(const RouteQuery& query) const {
    std::vector<const UserPreference*> preferences;
    for (const std::string& name : {query.caller, query.user}) {
        if (const auto found = preferences_.find(name); !name.empty() && found != preferences_.end()) {
            preferences.push_back(&file_.users[found->second]);
        }
    }
    return preferences;
}

RouteTable::Found RouteTable::by_user(const RouteQuery& query) const {
    const RouteRule* by_key = first_allowed(users_, query.caller, query);
    const RouteRule* rule = better(by_key, first_allowed(users_, query.user, query));
    return {rule, rule == by_key ? query.caller : query.user};
}

RouteTable::Found RouteTable::by_tag(const RouteQuery& query) const {
    Found best;
    const auto look = [&](const std::string& tag) {
        const RouteRule* found = first_allowed(tags_, comparable(tag), query);
        if (found != nullptr && better(best.rule, found) != best.rule) best = {found, tag};
    };
    for (const std::string& tag : query.tags) look(tag);
    for (const UserPreference* preference : preferences_of(query)) {
        for (const std::string& tag : preference->tags) look(tag);
    }
    return best;
}

RouteTable::Found RouteTable::by_keyword(const RouteQuery& query, std::string_view text) const {
    const std::vector<std::size_t> ends = word_ends(text, most_tokens_);
    using Merit = std::tuple<int, std::size_t, std::size_t>;  // smaller is better
    constexpr std::size_t kFar = static_cast<std::size_t>(-1);
    std::optional<Merit> best;
    std::size_t word = 0;
    std::vector<bool> settled(keywords_.size());
    index_.scan(text, [&](std::size_t keyword, std::size_t begin, std::size_t end) {
        // Matches come by their end, so a rule that does not reach the first of a keyword reaches none.
        if (settled[keyword] || !is_whole_word(text, begin, end)) return;
        settled[keyword] = true;
        for (const std::size_t number : keywords_[keyword].rules) {
            const RouteRule& rule = file_.rules[number];
            if (!may_use(rule, query) || end > reach_of(rule, ends, text.size())) continue;
            const Merit merit{-rule.priority, kFar - keywords_[keyword].characters, number};
            if (!best || merit < *best) {
                best = merit;
                word = keyword;
            }
            break;
        }
    });
    if (!best) return {};
    return {&file_.rules[std::get<2>(*best)], keywords_[word].word};
}

RouteTable::Found RouteTable::by_pattern(const RouteQuery& query, const RouteRule* best, int& over_limit) const {
    if (with_patterns_.empty()) return {};
    const std::string text = searchable(beginning_of(query.text, kPatternBytes));
    const std::vector<std::size_t> ends = word_ends(text, most_tokens_);
    for (const std::size_t number : with_patterns_) {
        const RouteRule& rule = file_.rules[number];
        if (best != nullptr && rule.priority <= best->priority) return {};
        if (!may_use(rule, query)) continue;
        const std::string_view seen = std::string_view(text).substr(0, reach_of(rule, ends, text.size()));
        for (const RoutePattern& pattern : compiled_.patterns[number]) {
            const RoutePattern::Match match = pattern.find(seen);
            if (match.outcome == RoutePattern::Outcome::found) {
                const std::string_view matched = seen.substr(match.begin, match.end - match.begin);
                return {&rule, std::string(beginning_of(matched, kShownBytes)), true};
            }
            if (match.outcome == RoutePattern::Outcome::over_limit && ++over_limit >= kGivenUp) return {};
        }
    }
    return {};
}

std::optional<RouteChoice> RouteTable::by_classifier(const RouteQuery& query, std::string_view text) const {
    const std::size_t number = file_.rules.size() + file_.users.size();
    if (!compiled_.classifier || text.empty() || contains(query.passed_over, number)) return std::nullopt;
    const Classifier::Guess guess = compiled_.classifier->classify(text);
    const std::optional<double> own = file_.classifier ? file_.classifier->threshold : std::nullopt;
    if (guess.probability < own.value_or(compiled_.classifier->threshold())) return std::nullopt;
    RouteChoice choice{{"classifier", {}}, {}};
    choice.decision.score = guess.probability;
    const std::string& label = compiled_.classifier->labels()[guess.label];
    if (!label.empty()) choice.modules.push_back({label, 1.0});
    choice.number = number;
    return choice;
}

RouteChoice RouteTable::chosen(const char* kind, const Found& found) const {
    RouteChoice choice{{kind, {}}, found.rule->modules};
    choice.number = static_cast<std::size_t>(found.rule - file_.rules.data());
    choice.decision.name = label_of(choice.number);
    choice.decision.matched = found.matched;
    return choice;
}

RouteChoice RouteTable::decide(const RouteQuery& query) const {
    if (const RouteRule* rule = first_allowed(task_ids_, query.task_id, query))
        return chosen("task_id", {rule, query.task_id});
    if (const Found found = by_user(query); found.rule != nullptr) return chosen("user", found);
    for (const UserPreference* preference : preferences_of(query)) {
        const std::size_t number = file_.rules.size() + static_cast<std::size_t>(preference - file_.users.data());
        if (preference->modules.empty() || contains(query.passed_over, number)) continue;
        RouteChoice choice{{"user", {}}, preference->modules};
        choice.number = number;
        choice.decision.name = label_of(number);
        choice.decision.matched = preference->user;
        return choice;
    }
    if (const Found found = by_tag(query); found.rule != nullptr) return chosen("tag", found);

    std::string text;
    if (!query.text.empty() && (!keywords_.empty() || compiled_.classifier))
        text = comparable(beginning_of(query.text, keywords_.empty() ? Classifier::kScannedBytes : kScannedBytes));
    Found found = by_keyword(query, text);
    int over_limit = 0;
    if (Found pattern = by_pattern(query, found.rule, over_limit); pattern.rule != nullptr) found = std::move(pattern);
    RouteChoice choice;
    if (found.rule != nullptr) {
        choice = chosen(found.by_pattern ? "regex" : "keyword", found);
    } else if (auto guessed = by_classifier(query, text)) {
        choice = std::move(*guessed);
    } else {
        choice = RouteChoice{{"default", {}}, file_.default_modules};
        choice.number = file_.rules.size() + file_.users.size() + 1;
        choice.is_last = true;
    }
    choice.patterns_over_limit = over_limit;
    return choice;
}

RouteChoice RouteTable::choose(const RouteQuery& query) const {
    RouteChoice choice = decide(query);
    for (const WeightedModule& module : choice.modules) choice.decision.modules.push_back(module.name);
    for (const std::size_t number : query.passed_over) choice.decision.skipped.push_back(label_of(number));
    return choice;
}

std::vector<std::string> RouteTable::modules_of_user(const std::string& user, const std::string& caller) const {
    RouteQuery query;
    query.user = user;
    query.caller = caller;
    std::vector<std::string> names;
    const auto add = [&](const std::vector<WeightedModule>& modules) {
        for (const WeightedModule& module : modules)
            if (names.size() < kUserModules && std::find(names.begin(), names.end(), module.name) == names.end())
                names.push_back(module.name);
    };
    if (const Found found = by_user(query); found.rule != nullptr) add(found.rule->modules);
    for (const UserPreference* preference : preferences_of(query)) add(preference->modules);
    if (const Found found = by_tag(query); found.rule != nullptr) add(found.rule->modules);
    return names;
}

}  // namespace attune
