#pragma once

#include "attune/clock.hpp"
#include "attune/request.hpp"
#include "attune/token_sink.hpp"
#include "engine/sample/token_constraint.hpp"
#include "engine/schedule/batch.hpp"

#include <memory>
#include <string>
#include <vector>

namespace attune {

/// A module on its slot, as a job or a switch names it.
struct JobModule {
    SlotId slot{};
    AppliedModule applied;
    std::vector<std::string> owners = {};  ///< who may share the keys and values it makes; empty: everyone
};

/// What the router hands to the executor: tokenised, leased, routed.
struct Job {
    RequestId id{};
    std::vector<TokenId> prompt;
    SamplingParams sampling;         ///< max_tokens and seed are set
    bool to_context_end = false;     ///< the client set no max_tokens: virtual tokens may shorten the answer
    std::vector<JobModule> modules;  ///< empty: the base; states act in this order
    Combine combine = Combine::sequence;
    std::string cache_salt;  ///< the client's; requests share cached keys and values only under the same one
    std::unique_ptr<TokenConstraint> constraint;
    ColdWord cold = ColdWord::warm;
    /// Cold policy revise: switch_modules() makes the whole answer again, and an answer that ends before is kept open
    /// until then, or until stop_waiting().
    bool revise = false;
    RouteDecision route;
    int priority = 0;
    TimePoint received{};
    std::optional<TimePoint> deadline;
    std::shared_ptr<TokenSink> sink;
};

using JobPtr = std::unique_ptr<Job>;

}  // namespace attune
