#pragma once

#include "attune/clock.hpp"
#include "engine/schedule/batch.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace attune {

/// The modules that act on a request's rows, in its order; empty: the base.
using ModuleSet = std::vector<SlotWeight>;

/// scheduler.apply
enum class ApplyWish : std::uint8_t { batched, merged, automatic };

/// Decides when one set of modules lies in the base's weights instead of being added row by row. Times and integers
/// only: the engine asks before each step, does what it is told and tells what that took.
///
/// A set is merged when every request asks for it: at once (`merged`), or when the time that its steps would have saved
/// since then has paid for merging and restoring (`automatic`), which costs at most twice what knowing the future
/// would. When a request for anything else waits, requests of the set that have not begun wait, too, and those that
/// have get `drain` to end; then the base is restored and all go on side by side.
class ApplyPolicy {
public:
    ApplyPolicy(ApplyWish wish, std::chrono::milliseconds drain) : wish_(wish), drain_(drain) {}

    bool may_merge() const { return wish_ != ApplyWish::batched; }

    /// What the requests in the engine ask for.
    struct Demand {
        std::optional<ModuleSet> only;  ///< the one set that all of them ask for
        std::uint64_t merge_bytes = 0;  ///< weights that merging `only` would change; 0: it cannot be merged
        bool merged_runs = false;       ///< a request of the merged set has begun
        bool others = false;            ///< a request asks for something else than the merged set
    };
    enum class Action : std::uint8_t { stay, merge, restore };
    Action before_step(const Demand& demand, TimePoint now);

    /// Null while nothing is merged.
    const ModuleSet* merged_set() const { return merged_ ? &*merged_ : nullptr; }
    /// Requests of the merged set that have not begun wait.
    bool is_draining() const { return merged_ && drain_until_.has_value(); }

    void merged(const ModuleSet& set, std::uint64_t bytes, double seconds);
    void restored(double seconds);
    /// It could not be merged: not tried again before one of its slots is emptied, or the base was repaired.
    void refused(const ModuleSet& set);
    void base_repaired() { refused_.clear(); }
    void slot_emptied(SlotId slot);
    /// A step computed `rows` rows; `decodes`: no prompt was among them.
    void stepped(int rows, bool decodes, double seconds);

    /// What a merge of so many bytes and its way back are expected to take.
    double switch_seconds(std::uint64_t bytes) const;
    /// The share of a step of so many rows that would be saved.
    double saved_share(int rows) const;

private:
    /// A running mean that forgets slowly.
    struct Mean {
        double value = 0;
        int samples = 0;
        void add(double sample);
    };
    struct RowSeconds {
        Mean batched, merged;
    };
    static constexpr std::size_t kBuckets = 16;
    static std::size_t bucket(int rows);
    void begin_candidate(const ModuleSet& set);

    ApplyWish wish_;
    std::chrono::milliseconds drain_;
    std::optional<ModuleSet> merged_;
    std::uint64_t merged_bytes_ = 0;
    std::optional<TimePoint> drain_until_;
    std::vector<ModuleSet> refused_;
    std::optional<ModuleSet> candidate_;        // every request asks for it
    double saved_seconds_ = 0;                  // what merging it would have saved by now
    ModuleSet measured_;                        // whose steps the next are
    std::array<RowSeconds, kBuckets> seconds_;  // per row, by the number of rows: [log2]
    Mean merge_byte_seconds_, restore_byte_seconds_;
};

}  // namespace attune
