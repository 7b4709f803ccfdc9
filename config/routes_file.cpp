#include "config/routes_file.hpp"

#include "config/routes_table.hpp"
#include "config/toml_text.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace attune {
namespace {

// Bounds on what one file may hold; far above what a person writes, far below what would hurt the router.
constexpr std::uint64_t kFileBytes = 16ull << 20;
constexpr std::size_t kRules = 10000;
constexpr std::size_t kWords = 200000;   ///< keywords, task ids, tags and users of all rules together
constexpr std::size_t kUsers = 100000;   ///< entries of [users]
constexpr std::size_t kWordBytes = 256;  ///< one keyword, task id, tag or user
constexpr std::size_t kNameBytes = 512;  ///< a module's name: 128 letters of any script
constexpr std::size_t kModules = 8;      ///< per rule, as limits.modules
constexpr double kLargestWeight = 100;   ///< as in requests
constexpr std::int64_t kHighestPriority = 100;
constexpr std::size_t kPatterns = 256;        ///< of all rules together: each costs a search
constexpr std::size_t kPatternBytes = 1024;   ///< of one, as engine/route compiles it
constexpr std::int64_t kFirstTokens = 10000;  ///< far beyond what a rule on a text's beginning means

Error wrong(const std::string& place, const std::string& what) {
    return make_error(Errc::invalid_argument, place + what);
}

bool is_plain(std::string_view text) {
    return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

/// The place "routes.toml, line 7: rule 2, keywords" of a value.
struct Place {
    std::string file;
    std::string owner;  ///< "rule 2", "user \"ann\"", "default"

    std::string of(const toml::node& node, const std::string& key = {}) const {
        return place_of(node, file) + owner + (key.empty() ? "" : (owner.empty() ? "" : ", ") + key);
    }
};

/// What is left of the limits on a whole file.
struct Budget {
    std::size_t words = kWords;
    std::size_t patterns = kPatterns;
};

Result<std::vector<std::string>> read_words(const toml::node& node, const Place& place, const std::string& key,
                                            Budget& budget) {
    const bool are_patterns = key == "regex";
    const std::size_t longest = are_patterns ? kPatternBytes : kWordBytes;
    std::size_t& left = are_patterns ? budget.patterns : budget.words;
    const toml::array* items = node.as_array();
    if (items == nullptr) return wrong(place.of(node, key), " = " + describe(node) + ": allowed: a list of texts");
    std::vector<std::string> words;
    for (const toml::node& item : *items) {
        const auto word = item.as_string();
        if (word == nullptr) {
            return wrong(place.of(item, key), ": " + describe(item) + " is not a text; allowed: a list of texts");
        }
        const std::string& text = word->get();
        if (text.find_first_not_of(" \t") == std::string::npos) {
            return wrong(place.of(item, key), ": an empty text would match everything");
        }
        if (text.size() > longest || !is_plain(text)) {
            return wrong(place.of(item, key), ": " + describe(item) + " is longer than " + std::to_string(longest) +
                                                  " bytes or holds control characters");
        }
        if (left == 0) {
            const std::size_t limit = are_patterns ? kPatterns : kWords;
            return wrong(place.of(item, key), ": more than " + std::to_string(limit) +
                                                  (are_patterns ? " patterns" : " texts") + " in the whole file");
        }
        --left;
        words.push_back(text);
    }
    return words;
}

std::optional<std::string> name_fault(std::string_view name) {
    if (name.empty()) return "is empty";
    if (name == "auto") return "is what clients say to be routed, not a module";
    if (name.size() > kNameBytes) return "is longer than " + std::to_string(kNameBytes) + " bytes";
    if (!is_plain(name) || name.find('/') != std::string_view::npos) return "is not a module's name";
    return std::nullopt;
}

Result<WeightedModule> read_module(const toml::node& node, const Place& place, const std::string& key) {
    WeightedModule module;
    if (const auto name = node.as_string()) {
        module.name = name->get();
    } else if (const toml::table* entry = node.as_table()) {
        for (const auto& [word, value] : *entry) {
            if (word.str() == "name" && value.is_string()) {
                module.name = value.as_string()->get();
            } else if (word.str() == "weight" && value.is_number()) {
                module.weight = *value.value<double>();
            } else {
                return wrong(place.of(value, key), ": " + std::string(word.str()) + " = " + describe(value) +
                                                       " is not allowed; allowed: name (a text), weight (a number)");
            }
        }
    } else {
        return wrong(place.of(node, key),
                     ": " + describe(node) + " is not a module; allowed: a name, or { name = \"...\", weight = 1.0 }");
    }
    if (const auto fault = name_fault(module.name)) {
        return wrong(place.of(node, key), ": module \"" + module.name.substr(0, kNameBytes) + "\" " + *fault);
    }
    if (!std::isfinite(module.weight) || std::abs(module.weight) > kLargestWeight) {
        return wrong(place.of(node, key), ": module \"" + module.name + "\": weight must lie between -100 and 100");
    }
    return module;
}

/// A list of modules, or one name.
Result<std::vector<WeightedModule>> read_modules(const toml::node& node, const Place& place, const std::string& key) {
    std::vector<WeightedModule> modules;
    if (!node.is_array()) {
        if (node.is_string() && node.as_string()->get().empty()) return modules;
        auto one = read_module(node, place, key);
        if (!one) return one.error();
        modules.push_back(std::move(*one));
        return modules;
    }
    for (const toml::node& item : *node.as_array()) {
        auto one = read_module(item, place, key);
        if (!one) return one.error();
        const bool twice = std::any_of(modules.begin(), modules.end(), [&](auto& m) { return m.name == one->name; });
        if (twice) return wrong(place.of(item, key), ": module \"" + one->name + "\" is named twice");
        if (modules.size() == kModules) {
            return wrong(place.of(item, key), ": more than " + std::to_string(kModules) + " modules");
        }
        modules.push_back(std::move(*one));
    }
    return modules;
}

Error unknown_key(const Place& place, const toml::node& value, std::string_view key,
                  std::span<const std::string> known) {
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    const std::string close = nearest(key, known);
    return wrong(place.of(value), (place.owner.empty() ? "" : ": ") + std::string("unknown key ") + std::string(key) +
                                      " = " + describe(value) + (close.empty() ? "" : "; did you mean " + close + "?") +
                                      " Known: " + list);
}

/// A short text: a rule's name, a key's.
std::optional<std::string> read_word(const toml::node& node) {
    const auto text = node.as_string();
    if (text == nullptr || text->get().size() > kWordBytes || !is_plain(text->get())) return std::nullopt;
    return text->get();
}

Result<RouteRule> read_rule(const toml::table& entry, const Place& place, Budget& budget) {
    static const std::array<std::string, 10> kKnown = {"name", "modules", "keywords",     "regex",    "task_ids",
                                                       "tags", "users",   "first_tokens", "priority", "owner"};
    RouteRule rule;
    for (const auto& [key, value] : entry) {
        const std::string word(key.str());
        std::vector<std::string>* list = word == "keywords"   ? &rule.keywords
                                         : word == "regex"    ? &rule.regex
                                         : word == "task_ids" ? &rule.task_ids
                                         : word == "tags"     ? &rule.tags
                                         : word == "users"    ? &rule.users
                                                              : nullptr;
        if (list != nullptr) {
            auto words = read_words(value, place, word, budget);
            if (!words) return words.error();
            *list = std::move(*words);
        } else if (word == "modules") {
            auto modules = read_modules(value, place, word);
            if (!modules) return modules.error();
            rule.modules = std::move(*modules);
        } else if (word == "priority") {
            const auto number = value.as_integer();
            if (number == nullptr || std::abs(number->get()) > kHighestPriority) {
                return wrong(place.of(value, word), " = " + describe(value) + ": allowed: an integer from -100 to 100");
            }
            rule.priority = static_cast<int>(number->get());
        } else if (word == "first_tokens") {
            const auto number = value.as_integer();
            if (number == nullptr || number->get() < 1 || number->get() > kFirstTokens) {
                return wrong(place.of(value, word), " = " + describe(value) + ": allowed: an integer from 1 to " +
                                                        std::to_string(kFirstTokens));
            }
            rule.first_tokens = static_cast<int>(number->get());
        } else if (word == "owner" || word == "name") {
            const auto text = read_word(value);
            if (!text) {
                return wrong(place.of(value, word), " = " + describe(value) + ": allowed: " +
                                                        (word == "owner" ? "the name of a key" : "a short text"));
            }
            (word == "owner" ? rule.owner : rule.name) = *text;
        } else {
            return unknown_key(place, value, word, kKnown);
        }
    }
    if (!entry.contains("modules")) {
        return wrong(place.of(entry), ": modules is missing; [] sends a match to the plain base");
    }
    const bool reads_text = !rule.keywords.empty() || !rule.regex.empty();
    if (!reads_text && rule.task_ids.empty() && rule.tags.empty() && rule.users.empty()) {
        return wrong(place.of(entry), ": matches nothing; it needs keywords, regex, task_ids, tags or users");
    }
    if (!reads_text && rule.first_tokens > 0) {
        return wrong(place.of(entry), ": first_tokens is for keywords and regex, and the rule has neither");
    }
    return rule;
}

Result<UserPreference> read_user(std::string_view user, const toml::node& node, const std::string& file,
                                 Budget& budget) {
    static const std::array<std::string, 2> kKnown = {"tags", "modules"};
    const Place place{file, "user \"" + std::string(user.substr(0, kWordBytes)) + "\""};
    if (user.empty() || user.size() > kWordBytes) return wrong(place.of(node), ": the name is empty or too long");
    const toml::table* entry = node.as_table();
    if (entry == nullptr) {
        return wrong(place.of(node), ": allowed: { tags = [\"...\"], modules = [\"...\"] }");
    }
    UserPreference preference;
    preference.user = user;
    for (const auto& [key, value] : *entry) {
        if (key.str() == "tags") {
            auto tags = read_words(value, place, "tags", budget);
            if (!tags) return tags.error();
            preference.tags = std::move(*tags);
        } else if (key.str() == "modules") {
            auto modules = read_modules(value, place, "modules");
            if (!modules) return modules.error();
            preference.modules = std::move(*modules);
        } else {
            return unknown_key(place, value, key.str(), kKnown);
        }
    }
    return preference;
}

Result<std::vector<RouteRule>> read_rules(const toml::node& node, const std::string& file, Budget& budget) {
    const toml::array* entries = node.as_array();
    if (entries == nullptr) return wrong(place_of(node, file), "rule: allowed: [[rule]] entries");
    if (entries->size() > kRules) return wrong(place_of(node, file), "more than " + std::to_string(kRules) + " rules");
    std::vector<RouteRule> rules;
    for (const toml::node& item : *entries) {
        const Place place{file, "rule " + std::to_string(rules.size() + 1)};
        const toml::table* entry = item.as_table();
        if (entry == nullptr) return wrong(place.of(item), ": allowed: [[rule]] entries");
        auto rule = read_rule(*entry, place, budget);
        if (!rule) return rule.error();
        rules.push_back(std::move(*rule));
    }
    return rules;
}

Result<std::vector<UserPreference>> read_users(const toml::node& node, const std::string& file, Budget& budget) {
    const toml::table* entries = node.as_table();
    if (entries == nullptr) return wrong(place_of(node, file), "users: allowed: a [users] table");
    if (entries->size() > kUsers) return wrong(place_of(node, file), "more than " + std::to_string(kUsers) + " users");
    std::vector<UserPreference> users;
    for (const auto& [user, entry] : *entries) {
        auto preference = read_user(user.str(), entry, file, budget);
        if (!preference) return preference.error();
        users.push_back(std::move(*preference));
    }
    return users;
}

Result<ClassifierChoice> read_classifier(const toml::node& node, const std::string& file) {
    static const std::array<std::string, 3> kKnown = {"file", "threshold", "online"};
    const Place place{file, "classifier"};
    const toml::table* entry = node.as_table();
    if (entry == nullptr) return wrong(place.of(node), ": allowed: a [classifier] table");
    ClassifierChoice choice;
    for (const auto& [key, value] : *entry) {
        if (key.str() == "file") {
            const auto text = value.as_string();
            if (text == nullptr || text->get().empty() || text->get().size() > kNameBytes || !is_plain(text->get()))
                return wrong(place.of(value, "file"), " = " + describe(value) + ": allowed: a file's name");
            choice.file = text->get();
        } else if (key.str() == "threshold") {
            const auto number = value.is_number() ? value.value<double>() : std::nullopt;
            if (!number || !(*number >= 0 && *number <= 1))
                return wrong(place.of(value, "threshold"), " = " + describe(value) + ": allowed: a number from 0 to 1");
            choice.threshold = *number;
        } else if (key.str() == "online") {
            const auto word = value.as_boolean();
            if (word == nullptr)
                return wrong(place.of(value, "online"), " = " + describe(value) + ": allowed: true or false");
            choice.online = word->get();
        } else {
            return unknown_key(place, value, key.str(), kKnown);
        }
    }
    if (choice.file.empty()) return wrong(place.of(node), ": file is missing");
    return choice;
}

}  // namespace

Result<RouteFile> routes_of_table(const toml::table& table, const std::string& name) {
    static const std::array<std::string, 4> kKnown = {"rule", "default", "users", "classifier"};
    RouteFile file;
    Budget budget;
    for (const auto& [key, value] : table) {
        const std::string word(key.str());
        const auto keep = [](auto read, auto& into) -> Result<void> {
            if (!read) return read.error();
            into = std::move(*read);
            return {};
        };
        Result<void> read;
        if (word == "default")
            read = keep(read_modules(value, Place{name, ""}, "default"), file.default_modules);
        else if (word == "rule")
            read = keep(read_rules(value, name, budget), file.rules);
        else if (word == "users")
            read = keep(read_users(value, name, budget), file.users);
        else if (word == "classifier")
            read = keep(read_classifier(value, name), file.classifier);
        else
            read = unknown_key(Place{name, ""}, value, word, kKnown);
        if (!read) return read.error();
    }
    return file;
}

Result<RouteFile> parse_routes(std::string_view toml_text, const std::string& name) {
    auto table = parse_toml(toml_text, name);
    if (!table) return table.error();
    return routes_of_table(*table, name);
}

Result<RouteFile> read_routes(const std::filesystem::path& path) {
    auto text = read_text_file(path, kFileBytes);
    if (!text) return text.error();
    auto file = parse_routes(*text, path.filename().string());
    if (file && file->classifier) file->classifier->file = path.parent_path() / file->classifier->file;
    return file;
}

namespace {

std::string stamp_of_one(const std::filesystem::path& path) {
    struct stat now {};
    if (path.empty() || ::stat(path.c_str(), &now) != 0) return "-";
    return std::to_string(now.st_mtim.tv_sec) + "." + std::to_string(now.st_mtim.tv_nsec) + "/" +
           std::to_string(now.st_size) + "/" + std::to_string(now.st_dev) + ":" + std::to_string(now.st_ino);
}

}  // namespace

std::string routes_stamp(const std::filesystem::path& path, const RouteFile& in_force) {
    return stamp_of_one(path) + " " + (in_force.classifier ? stamp_of_one(in_force.classifier->file) : "");
}

}  // namespace attune
