#include "engine/acting_modules.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace attune {
namespace {

// The weights come from JSON, so 0.3 + 0.7 may miss 1 in the last bits.
constexpr double kWeightSumTolerance = 1e-6;

struct Acting {
    const JobModule* applied;
    Resident resident;

    const Module& module() const { return *resident.module; }
    std::string name() const { return in_quotes(applied->applied.id.name); }
};

Error refuse(std::string why, const char* param) { return make_error(Errc::invalid_argument, std::move(why), param); }

/// Where the last occurrence of `wanted` begins.
std::optional<int> last_occurrence(std::span<const TokenId> prompt, std::span<const TokenId> wanted) {
    const auto found = std::ranges::find_end(prompt, wanted);
    if (found.empty()) return std::nullopt;
    return static_cast<int>(found.begin() - prompt.begin());
}

Result<void> check_virtual_tokens(const std::vector<Acting>& acting) {
    const Acting* first = nullptr;
    for (const Acting& one : acting) {
        if (one.module().virtual_tokens() == 0) continue;
        if (one.applied->applied.weight != 1.0)
            return refuse(
                "module " + one.name() + " puts virtual tokens before the prompt, so its weight can only be 0 or 1",
                "attune.modules");
        if (first != nullptr)
            return refuse("modules " + first->name() + " and " + one.name() +
                              " both put virtual tokens before the prompt; a request can have one of them",
                          "attune.modules");
        first = &one;
    }
    return {};
}

/// Why the states of two modules are not one with other numbers; empty when they are.
std::string difference(const std::vector<StateLayer>& a, const std::vector<StateLayer>& b) {
    const auto differ = [&](auto field) { return !std::ranges::equal(a, b, {}, field, field); };
    if (differ(&StateLayer::layer)) return "layers";
    if (differ(&StateLayer::kind)) return "kinds";
    if (differ(&StateLayer::width)) return "widths";
    if (differ(&StateLayer::activation)) return "activations";
    if (differ(&StateLayer::scale)) return "scales";
    return {};
}

Result<void> check_interpolation(const std::vector<Acting>& acting) {
    const Acting* first = nullptr;
    double sum = 0;
    for (const Acting& one : acting) {
        if (one.module().states.empty()) continue;
        sum += one.applied->applied.weight;
        if (first == nullptr) first = &one;
        if (const std::string what = difference(first->module().states, one.module().states); !what.empty())
            return refuse("the states of modules " + first->name() + " and " + one.name() +
                              " cannot be interpolated: their " + what + " differ",
                          "attune.combine");
    }
    if (first != nullptr && !(std::fabs(sum - 1.0) <= kWeightSumTolerance))
        return refuse("the weights of interpolated states must sum to 1, they sum to " + std::to_string(sum),
                      "attune.combine");
    return {};
}

}  // namespace

Result<SequenceModules> acting_modules(std::span<const TokenId> prompt, const std::vector<JobModule>& modules,
                                       Combine combine, const FindResident& find) {
    std::vector<Acting> acting;
    for (const JobModule& module : modules) {
        const Acting one{&module, find(module.slot)};
        if (one.resident.module == nullptr)
            return make_error(Errc::internal, "module " + one.name() + " is not resident");
        if (module.applied.weight != 0) acting.push_back(one);
    }
    if (auto ok = check_virtual_tokens(acting); !ok) return ok.error();
    if (combine == Combine::interpolate) {
        if (auto ok = check_interpolation(acting); !ok) return ok.error();
    }

    SequenceModules out;
    for (const Acting& one : acting) {
        if (one.module().virtual_tokens() > 0)
            out.virtual_tokens = {one.module().virtual_tokens(), one.resident.prefix};
    }
    int states = 0;
    for (const Acting& one : acting) {
        int from = 0;
        if (!one.module().invocation.empty()) {
            const auto invoked = last_occurrence(prompt, one.module().invocation);
            if (!invoked) continue;
            from = out.virtual_tokens.count + *invoked;
        }
        states += one.module().states.empty() ? 0 : 1;
        out.list.push_back({{one.applied->slot, static_cast<float>(one.applied->applied.weight)}, from});
    }
    // One state is the same in every combination, and equal rows share a segment.
    if (states > 1) out.combine = combine;
    return out;
}

}  // namespace attune
