#include "engine/route/route_table.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace attune {
namespace {

/// Characters that show nothing: soft hyphen, zero-width spaces and joiners, variation selectors. A heart is a heart
/// with or without its selector, and a zero-width space must not hide a word from its rule.
bool is_invisible(char32_t c) {
    return c == 0x00AD || c == 0x034F || (c >= 0x200B && c <= 0x200F) || (c >= 0x2060 && c <= 0x2064) ||
           (c >= 0xFE00 && c <= 0xFE0F) || c == 0xFEFF || (c >= 0xE0100 && c <= 0xE01EF);
}

/// Form in which keywords and texts are compared.
std::string comparable(std::string_view text) {
    std::string visible;
    visible.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint c = code_point_at(text, at);
        if (!is_invisible(c.value)) visible.append(text.substr(at, c.bytes));
        at += c.bytes;
    }
    return fold_for_matching(visible);
}

std::string valid_utf8(std::string_view text) {
    if (is_valid_utf8(text)) return std::string(text);
    std::string repaired;
    LossyUtf8 lossy;
    lossy.push(text, repaired);
    lossy.flush(repaired);
    return repaired;
}

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

}  // namespace

RouteTable::RouteTable(RouteFile file) : file_(std::move(file)) {
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
        for (const std::string& tag : rule.tags) tags.push_back(comparable(valid_utf8(tag)));
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
            if (std::string word = comparable(valid_utf8(keyword)); !word.empty()) keywords.push_back(std::move(word));
        }
        return keywords;
    });
    std::vector<std::string> sorted;
    for (auto& [word, rules] : folded) {
        sorted.push_back(word);
        keywords_.push_back({count_code_points(word), std::move(rules)});
    }
    index_ = KeywordIndex(sorted);
}

const RouteRule* RouteTable::first_allowed(const RulesByWord& words, std::string_view word,
                                           const RouteQuery& query) const {
    const auto found = words.find(word);
    if (word.empty() || found == words.end()) return nullptr;
    for (const std::size_t rule : found->second) {
        const std::string& owner = file_.rules[rule].owner;
        if (owner.empty() || owner == query.caller) return &file_.rules[rule];
    }
    return nullptr;
}

const RouteRule* RouteTable::better(const RouteRule* one, const RouteRule* other) const {
    if (one == nullptr || other == nullptr) return one == nullptr ? other : one;
    // Rules lie in file order, so the lower address is the earlier one.
    return std::make_tuple(-one->priority, one) <= std::make_tuple(-other->priority, other) ? one : other;
}

const RouteRule* RouteTable::by_keyword(const RouteQuery& query) const {
    if (keywords_.empty() || query.text.empty()) return nullptr;
    std::string_view scanned(query.text);
    if (scanned.size() > kScannedBytes) {
        scanned = scanned.substr(0, kScannedBytes);
        scanned = scanned.substr(0, complete_utf8_bytes(scanned));
    }
    const std::string text = comparable(valid_utf8(scanned));

    using Merit = std::tuple<int, std::size_t, std::size_t>;  // smaller is better
    constexpr std::size_t kFar = static_cast<std::size_t>(-1);
    std::optional<Merit> best;
    std::vector<bool> settled(keywords_.size());
    index_.scan(text, [&](std::size_t keyword, std::size_t begin, std::size_t end) {
        if (settled[keyword] || !is_whole_word(text, begin, end)) return;
        settled[keyword] = true;
        for (const std::size_t rule : keywords_[keyword].rules) {
            const std::string& owner = file_.rules[rule].owner;
            if (!owner.empty() && owner != query.caller) continue;
            const Merit merit{-file_.rules[rule].priority, kFar - keywords_[keyword].characters, rule};
            if (!best || merit < *best) best = merit;
            break;
        }
    });
    return best ? &file_.rules[std::get<2>(*best)] : nullptr;
}

RouteChoice RouteTable::choose(const RouteQuery& query) const {
    const auto chosen = [](const char* why, const std::vector<WeightedModule>& modules) {
        RouteChoice choice{{why, {}}, modules};
        for (const WeightedModule& module : modules) choice.decision.modules.push_back(module.name);
        return choice;
    };
    if (const RouteRule* rule = first_allowed(task_ids_, query.task_id, query)) return chosen("task_id", rule->modules);

    const RouteRule* for_user =
        better(first_allowed(users_, query.caller, query), first_allowed(users_, query.user, query));
    if (for_user != nullptr) return chosen("user", for_user->modules);

    // The key's name says more than the `user` field, which anyone may write.
    std::vector<const UserPreference*> preferences;
    for (const std::string& name : {query.caller, query.user}) {
        if (const auto found = preferences_.find(name); !name.empty() && found != preferences_.end()) {
            preferences.push_back(&file_.users[found->second]);
        }
    }
    for (const UserPreference* preference : preferences) {
        if (!preference->modules.empty()) return chosen("user", preference->modules);
    }

    const RouteRule* tagged = nullptr;
    const auto by_tag = [&](const std::string& tag) {
        return first_allowed(tags_, comparable(valid_utf8(tag)), query);
    };
    for (const std::string& tag : query.tags) tagged = better(tagged, by_tag(tag));
    for (const UserPreference* preference : preferences) {
        for (const std::string& tag : preference->tags) tagged = better(tagged, by_tag(tag));
    }
    if (tagged != nullptr) return chosen("tag", tagged->modules);

    if (const RouteRule* rule = by_keyword(query)) return chosen("keyword", rule->modules);
    return chosen("default", file_.default_modules);
}

}  // namespace attune
