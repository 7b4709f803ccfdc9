#pragma once

#include "engine/module/module_loader.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attune {

inline constexpr double kLargestWeight = 100;  ///< of a module in a request, either sign

/// What the name table knows of a module.
struct KnownModule {
    const ModuleHeader* header = nullptr;  ///< null: not readable yet; then it has neither members nor needs
    std::string generation;                ///< empty: not loaded
};
using FindModule = std::function<Result<KnownModule>(const std::string& name)>;

/// A generation that a module requires of another that was not loaded yet: to be checked when it is.
struct RequiredGeneration {
    std::string by;
    std::string name;
    std::string pin;
};

struct ResolvedModules {
    std::vector<WeightedModule> modules;  ///< in the order they act in, each name once, no compositions
    std::vector<RequiredGeneration> unchecked;
    std::optional<Combine> combine;  ///< what the compositions among them say; none: there are none
};

/// Members in the place of compositions (weights multiplied), what they require added with weight 1 unless named;
/// required ones first, then by `order`, then by name (DESIGN 4). A module of weight 0 stays and requires nothing.
/// `limit` counts what comes out. `combine` is the request's own: with it compositions may combine in different ways.
/// Errors name the culprit: unknown_model or what `find` says, invalid_argument for
/// cycles, pins that differ, a composition inside another or required, one name with two weights, weights beyond
/// kLargestWeight and too many.
Result<ResolvedModules> resolve_modules(const std::vector<WeightedModule>& asked, int limit, const FindModule& find,
                                        std::optional<Combine> combine = {});

/// The sentence for a required module that is there in another version or generation.
Error wrong_pin(const RequiredGeneration& wanted, const std::string& version, const std::string& generation);

}  // namespace attune
