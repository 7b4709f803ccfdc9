#pragma once

#include "attune/request.hpp"

#include <string>
#include <vector>

namespace attune {

/// One routing rule: from config/routes.toml or from a module's manifest.
struct RouteRule {
    std::vector<WeightedModule> modules;
    std::vector<std::string> task_ids;
    std::vector<std::string> tags;
    std::vector<std::string> users;
    std::vector<std::string> keywords;
    int priority = 0;   ///< -100..100
    std::string owner;  ///< routed to only for this owner; empty: everyone
};

/// What `[users]` says of a key or `user` field.
struct UserPreference {
    std::string user;
    std::vector<std::string> tags;
    std::vector<WeightedModule> modules;
};

struct RouteFile {
    std::vector<RouteRule> rules;  ///< in file order
    std::vector<UserPreference> users;
    std::vector<WeightedModule> default_modules;  ///< what an unmatched "auto" gets; empty = the base
};

}  // namespace attune
