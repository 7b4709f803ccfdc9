#pragma once

#include "attune/request.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// One routing rule: from config/routes.toml or from a module's manifest.
struct RouteRule {
    std::string name = {};  ///< what answers call it; empty: by its number
    std::vector<WeightedModule> modules;
    std::vector<std::string> task_ids;
    std::vector<std::string> tags;
    std::vector<std::string> users;
    std::vector<std::string> keywords;
    std::vector<std::string> regex = {};
    int first_tokens = 0;  ///< keywords and patterns look at that many words from the text's beginning only; 0: at all
    int priority = 0;      ///< -100..100
    std::string owner;     ///< routed to only for this owner; empty: everyone
};

/// What `[users]` says of a key or `user` field.
struct UserPreference {
    std::string user;
    std::vector<std::string> tags;
    std::vector<WeightedModule> modules;
};

/// The learned classifier a routes file names: asked when no rule matched.
struct ClassifierChoice {
    std::filesystem::path file;       ///< absolute, or relative to the working folder; never shown to a client
    std::optional<double> threshold;  ///< probability below which the default decides; none: the file's own
    bool online = false;              ///< learns from requests that name one module themselves
};

struct RouteFile {
    std::vector<RouteRule> rules;  ///< in file order
    std::vector<UserPreference> users;
    std::vector<WeightedModule> default_modules;  ///< what an unmatched "auto" gets; empty = the base
    std::optional<ClassifierChoice> classifier = {};
};

}  // namespace attune
