#pragma once

#include "attune/clock.hpp"
#include "attune/request.hpp"
#include "attune/token_sink.hpp"
#include "engine/sample/token_constraint.hpp"
#include "engine/schedule/batch.hpp"

#include <memory>
#include <vector>

namespace attune {

/// A module on its slot, as a job or a switch names it.
struct JobModule {
    SlotId slot{};
    AppliedModule applied;
};

/// What the router hands to the executor: tokenised, leased, routed.
struct Job {
    RequestId id{};
    std::vector<TokenId> prompt;
    SamplingParams sampling;         ///< max_tokens and seed are set
    std::vector<JobModule> modules;  ///< empty: the base
    int modules_from = 0;            ///< first prompt position they touch (aLoRA; 0 otherwise)
    std::unique_ptr<TokenConstraint> constraint;
    ColdWord cold = ColdWord::warm;
    RouteDecision route;
    int priority = 0;
    TimePoint received{};
    std::optional<TimePoint> deadline;
    std::shared_ptr<TokenSink> sink;
};

using JobPtr = std::unique_ptr<Job>;

}  // namespace attune
