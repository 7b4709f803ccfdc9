#include "config/routes_file.hpp"

#include "config/toml_text.hpp"

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

Result<std::vector<std::string>> read_words(const toml::node& node, const Place& place, const std::string& key,
                                            std::size_t& budget) {
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
        if (text.size() > kWordBytes || !is_plain(text)) {
            return wrong(place.of(item, key), ": " + describe(item) + " is longer than " + std::to_string(kWordBytes) +
                                                  " bytes or holds control characters");
        }
        if (budget == 0) {
            return wrong(place.of(item, key), ": more than " + std::to_string(kWords) + " texts in the whole file");
        }
        --budget;
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

Result<RouteRule> read_rule(const toml::table& entry, const Place& place, std::size_t& budget) {
    static const std::array<std::string, 7> kKnown = {"modules", "keywords", "task_ids", "tags",
                                                      "users",   "priority", "owner"};
    RouteRule rule;
    for (const auto& [key, value] : entry) {
        const std::string word(key.str());
        std::vector<std::string>* list = word == "keywords"   ? &rule.keywords
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
        } else if (word == "owner") {
            const auto text = value.as_string();
            if (text == nullptr || text->get().size() > kWordBytes || !is_plain(text->get())) {
                return wrong(place.of(value, word), " = " + describe(value) + ": allowed: the name of a key");
            }
            rule.owner = text->get();
        } else {
            return unknown_key(place, value, word, kKnown);
        }
    }
    if (!entry.contains("modules")) {
        return wrong(place.of(entry), ": modules is missing; [] sends a match to the plain base");
    }
    if (rule.keywords.empty() && rule.task_ids.empty() && rule.tags.empty() && rule.users.empty()) {
        return wrong(place.of(entry), ": matches nothing; it needs keywords, task_ids, tags or users");
    }
    return rule;
}

Result<UserPreference> read_user(std::string_view user, const toml::node& node, const std::string& file,
                                 std::size_t& budget) {
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

}  // namespace

Result<RouteFile> parse_routes(std::string_view toml_text, const std::string& name) {
    auto table = parse_toml(toml_text, name);
    if (!table) return table.error();
    static const std::array<std::string, 3> kKnown = {"rule", "default", "users"};
    RouteFile file;
    std::size_t budget = kWords;
    for (const auto& [key, value] : *table) {
        const std::string word(key.str());
        if (word == "default") {
            auto modules = read_modules(value, Place{name, ""}, "default");
            if (!modules) return modules.error();
            file.default_modules = std::move(*modules);
        } else if (word == "rule") {
            const toml::array* rules = value.as_array();
            if (rules == nullptr) return wrong(place_of(value, name), "rule: allowed: [[rule]] entries");
            if (rules->size() > kRules) {
                return wrong(place_of(value, name), "more than " + std::to_string(kRules) + " rules");
            }
            for (const toml::node& item : *rules) {
                const Place place{name, "rule " + std::to_string(file.rules.size() + 1)};
                const toml::table* entry = item.as_table();
                if (entry == nullptr) return wrong(place.of(item), ": allowed: [[rule]] entries");
                auto rule = read_rule(*entry, place, budget);
                if (!rule) return rule.error();
                file.rules.push_back(std::move(*rule));
            }
        } else if (word == "users") {
            const toml::table* users = value.as_table();
            if (users == nullptr) return wrong(place_of(value, name), "users: allowed: a [users] table");
            if (users->size() > kUsers) {
                return wrong(place_of(value, name), "more than " + std::to_string(kUsers) + " users");
            }
            for (const auto& [user, entry] : *users) {
                auto preference = read_user(user.str(), entry, name, budget);
                if (!preference) return preference.error();
                file.users.push_back(std::move(*preference));
            }
        } else {
            return unknown_key(Place{name, ""}, value, word, kKnown);
        }
    }
    return file;
}

Result<RouteFile> read_routes(const std::filesystem::path& path) {
    auto text = read_text_file(path, kFileBytes);
    if (!text) return text.error();
    return parse_routes(*text, path.filename().string());
}

}  // namespace attune
