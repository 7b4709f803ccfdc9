#include "engine/schedule/apply_policy.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;
using Action = ApplyPolicy::Action;
using Demand = ApplyPolicy::Demand;

namespace {

const ModuleSet kA{{SlotId{0}, 1.0F}};
const ModuleSet kB{{SlotId{1}, 1.0F}};
const ModuleSet kHalfA{{SlotId{0}, 0.5F}};
constexpr std::uint64_t kBytes = 1'000'000;
constexpr TimePoint kStart{std::chrono::hours(1)};

Demand all_ask_for(const ModuleSet& set, std::uint64_t bytes = kBytes) { return {set, bytes, false, false}; }
Demand mixture() { return {std::nullopt, 0, false, false}; }
Demand of_merged(bool runs, bool others) { return {std::nullopt, 0, runs, others}; }

}  // namespace

TEST_CASE("batched never merges, merged does it as soon as one set has all requests", "[engine][schedule][merge]") {
    ApplyPolicy batched(ApplyWish::batched, 100ms);
    CHECK_FALSE(batched.may_merge());
    CHECK(batched.before_step(all_ask_for(kA), kStart) == Action::stay);

    ApplyPolicy policy(ApplyWish::merged, 100ms);
    CHECK(policy.may_merge());
    CHECK(policy.before_step(mixture(), kStart) == Action::stay);
    CHECK(policy.before_step(all_ask_for({}), kStart) == Action::stay);     // the base
    CHECK(policy.before_step(all_ask_for(kA, 0), kStart) == Action::stay);  // nothing to merge
    CHECK(policy.before_step(all_ask_for(kA), kStart) == Action::merge);
    policy.merged(kA, kBytes, 0.01);
    REQUIRE(policy.merged_set() != nullptr);
    CHECK(*policy.merged_set() == kA);
    CHECK(policy.before_step(of_merged(true, false), kStart) == Action::stay);
    CHECK(policy.before_step(of_merged(false, false), kStart) == Action::stay);  // nobody is there: it stays
}

TEST_CASE("a merged set drains for so long when another request waits", "[engine][schedule][merge]") {
    ApplyPolicy policy(ApplyWish::merged, 100ms);
    policy.merged(kA, kBytes, 0.01);
    CHECK(policy.before_step(of_merged(true, true), kStart) == Action::stay);
    CHECK(policy.is_draining());
    CHECK(policy.before_step(of_merged(true, true), kStart + 99ms) == Action::stay);
    CHECK(policy.before_step(of_merged(true, true), kStart + 100ms) == Action::restore);
    policy.restored(0.01);
    CHECK(policy.merged_set() == nullptr);
    CHECK_FALSE(policy.is_draining());

    policy.merged(kA, kBytes, 0.01);
    CHECK(policy.before_step(of_merged(true, true), kStart) == Action::stay);
    CHECK(policy.before_step(of_merged(true, false), kStart + 50ms) == Action::stay);  // who waited has left
    CHECK_FALSE(policy.is_draining());
    CHECK(policy.before_step(of_merged(true, true), kStart + 120ms) == Action::stay);      // counted anew
    CHECK(policy.before_step(of_merged(false, true), kStart + 121ms) == Action::restore);  // nobody left to drain
}

TEST_CASE("auto merges when what its steps would have saved has paid for it", "[engine][schedule][merge]") {
    ApplyPolicy policy(ApplyWish::automatic, 100ms);
    const double cost = policy.switch_seconds(kBytes);
    CHECK(cost == Approx(0.004));  // a megabyte at the assumed rates
    int steps = 0;                 // of 0.5 ms to be saved each
    while (policy.before_step(all_ask_for(kA), kStart) == Action::stay) {
        policy.stepped(8, true, 0.01);
        REQUIRE(++steps < 100);
    }
    CHECK(steps == Approx(8).margin(1));

    // Anything else in between, and it starts from nothing.
    ApplyPolicy other(ApplyWish::automatic, 100ms);
    for (int i = 0; i < 50; ++i) {
        CHECK(other.before_step(all_ask_for(i % 2 == 0 ? kA : kHalfA), kStart) == Action::stay);
        other.stepped(8, true, 0.05);
    }
    CHECK(other.before_step(mixture(), kStart) == Action::stay);
    CHECK(other.before_step(all_ask_for(kA), kStart) == Action::stay);
}

TEST_CASE("auto believes what it measured: costs per byte, and the share that a merged step saves",
          "[engine][schedule][merge]") {
    ApplyPolicy policy(ApplyWish::automatic, 100ms);
    for (int i = 0; i < 20; ++i) {
        policy.before_step(all_ask_for(kA), kStart);
        policy.stepped(4, true, 0.010);
        policy.stepped(64, false, 5.0);  // prompts teach nothing
    }
    const double assumed = policy.saved_share(4);
    policy.merged(kA, kBytes, 0.5);
    for (int i = 0; i < 20; ++i) policy.stepped(4, true, 0.006);
    policy.restored(0.3);
    CHECK(policy.switch_seconds(kBytes) == Approx(0.8));
    CHECK(policy.switch_seconds(2 * kBytes) == Approx(1.6));
    CHECK(policy.saved_share(4) == Approx(0.4));
    CHECK(policy.saved_share(64) == Approx(assumed));  // never measured

    // 0.8 s to earn, 4 ms a step: 200 steps.
    int steps = 0;
    while (policy.before_step(all_ask_for(kA), kStart) == Action::stay) {
        policy.stepped(4, true, 0.010);
        REQUIRE(++steps < 1000);
    }
    CHECK(steps == Approx(200).margin(2));

    // Another set's steps are other steps.
    policy.before_step(all_ask_for(kB), kStart);
    CHECK(policy.saved_share(4) == Approx(assumed));
}

TEST_CASE("a measurement of no gain does not settle the question for good", "[engine][schedule][merge]") {
    ApplyPolicy policy(ApplyWish::automatic, 100ms);
    policy.before_step(all_ask_for(kA), kStart);
    for (int i = 0; i < 20; ++i) policy.stepped(4, true, 0.010);
    policy.merged(kA, kBytes, 0.001);
    for (int i = 0; i < 20; ++i) policy.stepped(4, true, 0.020);
    policy.restored(0.001);
    CHECK(policy.saved_share(4) > 0);
    CHECK(policy.saved_share(4) < 0.02);
}

TEST_CASE("a refused set is not tried again until one of its slots is emptied", "[engine][schedule][merge]") {
    ApplyPolicy policy(ApplyWish::merged, 100ms);
    REQUIRE(policy.before_step(all_ask_for(kA), kStart) == Action::merge);
    policy.refused(kA);
    CHECK(policy.before_step(all_ask_for(kA), kStart) == Action::stay);
    CHECK(policy.before_step(all_ask_for(kHalfA), kStart) == Action::merge);
    policy.slot_emptied(SlotId{1});
    CHECK(policy.before_step(all_ask_for(kA), kStart) == Action::stay);
    policy.slot_emptied(SlotId{0});
    CHECK(policy.before_step(all_ask_for(kA), kStart) == Action::merge);
    policy.refused(kA);
    policy.base_repaired();
    CHECK(policy.before_step(all_ask_for(kA), kStart) == Action::merge);
}
