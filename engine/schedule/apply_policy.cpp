#include "engine/schedule/apply_policy.hpp"

#include <algorithm>
#include <bit>

namespace attune {
namespace {

// Before anything was measured: half a gigabyte a second each way, a twentieth of a step saved.
constexpr double kByteSeconds = 2e-9;
constexpr double kAssumedShare = 0.05;
// A share is believed after so many steps of both kinds, and never taken for nothing or all: one disturbed
// measurement must not settle the question for good.
constexpr int kSamples = 8;
constexpr double kLeastShare = 0.01;
constexpr double kMostShare = 0.9;
constexpr std::size_t kRefusedSets = 64;

}  // namespace

void ApplyPolicy::Mean::add(double sample) {
    ++samples;
    value += (sample - value) / std::min(samples, 32);
}

ApplyPolicy::Action ApplyPolicy::before_step(const Demand& demand, TimePoint now) {
    if (merged_) {
        if (!demand.others) {
            drain_until_.reset();
            return Action::stay;
        }
        if (!drain_until_) drain_until_ = now + drain_;
        return !demand.merged_runs || now >= *drain_until_ ? Action::restore : Action::stay;
    }
    if (wish_ == ApplyWish::batched) return Action::stay;
    const bool can_merge = demand.only && !demand.only->empty() && demand.merge_bytes > 0 &&
                           std::find(refused_.begin(), refused_.end(), *demand.only) == refused_.end();
    if (!can_merge) {
        candidate_.reset();
        return Action::stay;
    }
    if (candidate_ != demand.only) begin_candidate(*demand.only);
    if (wish_ == ApplyWish::merged) return Action::merge;
    return saved_seconds_ >= switch_seconds(demand.merge_bytes) ? Action::merge : Action::stay;
}

void ApplyPolicy::begin_candidate(const ModuleSet& set) {
    candidate_ = set;
    saved_seconds_ = 0;
    if (measured_ == set) return;
    measured_ = set;
    seconds_ = {};
}

void ApplyPolicy::merged(const ModuleSet& set, std::uint64_t bytes, double seconds) {
    merged_ = set;
    merged_bytes_ = bytes;
    drain_until_.reset();
    candidate_.reset();
    saved_seconds_ = 0;
    if (bytes > 0) merge_byte_seconds_.add(seconds / static_cast<double>(bytes));
}

void ApplyPolicy::restored(double seconds) {
    if (merged_bytes_ > 0) restore_byte_seconds_.add(seconds / static_cast<double>(merged_bytes_));
    merged_.reset();
    drain_until_.reset();
}

void ApplyPolicy::refused(const ModuleSet& set) {
    if (refused_.size() >= kRefusedSets) refused_.clear();  // requests may bring any weights
    refused_.push_back(set);
}

void ApplyPolicy::slot_emptied(SlotId slot) {
    std::erase_if(refused_, [&](const ModuleSet& set) {
        return std::any_of(set.begin(), set.end(), [&](const SlotWeight& module) { return module.slot == slot; });
    });
    candidate_.reset();
    measured_.clear();
}

void ApplyPolicy::stepped(int rows, bool decodes, double seconds) {
    if (rows < 1) return;
    if (candidate_) saved_seconds_ += seconds * saved_share(rows);
    if (!decodes || !(merged_ || candidate_)) return;
    RowSeconds& known = seconds_[bucket(rows)];
    (merged_ ? known.merged : known.batched).add(seconds / rows);
}

double ApplyPolicy::switch_seconds(std::uint64_t bytes) const {
    const auto of = [](const Mean& mean) { return mean.samples > 0 ? mean.value : kByteSeconds; };
    return static_cast<double>(bytes) * (of(merge_byte_seconds_) + of(restore_byte_seconds_));
}

double ApplyPolicy::saved_share(int rows) const {
    const RowSeconds& known = seconds_[bucket(rows)];
    if (known.batched.samples < kSamples || known.merged.samples < kSamples) return kAssumedShare;
    return std::clamp(1 - known.merged.value / known.batched.value, kLeastShare, kMostShare);
}

std::size_t ApplyPolicy::bucket(int rows) {
    return std::min<std::size_t>(std::bit_width(static_cast<unsigned>(std::max(rows, 1))) - 1, kBuckets - 1);
}

}  // namespace attune
