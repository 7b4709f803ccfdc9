#pragma once

#include "engine/kv/block_pool.hpp"
#include "engine/schedule/sequence.hpp"

#include <functional>
#include <vector>

namespace attune {

struct SchedulerLimits {
    int max_sequences = 64;  ///< sequences that run at a time
    int step_tokens = 512;   ///< rows of a step
};

/// One sequence's share of a step: its next `rows` pending tokens.
struct ScheduledRows {
    Sequence* sequence = nullptr;
    int rows = 0;
};

struct StepPlan {
    std::vector<ScheduledRows> rows;   ///< equal slot lists lie side by side
    std::vector<BlockCopy> copies;     ///< to be done before the step's forward
    std::vector<Sequence*> preempted;  ///< lost their blocks, wait again
};

/// Decides what a step computes; holds integers only. Sequences join and leave between any two steps.
///
/// A sequence is admitted when blocks for all its pending tokens are free, so two half-read prompts never starve each
/// other. Decoding sequences get their rows first, prompts share what is left of `step_tokens`. When a running sequence
/// needs a block and none is free, the youngest that holds any gives all of its own back and is recomputed later.
class Scheduler {
public:
    Scheduler(SchedulerLimits limits, BlockPool& pool) : limits_(limits), pool_(&pool) {}

    /// The sequence is borrowed until remove(). It must fit into the pool when it is alone.
    void add(Sequence& sequence);
    /// The same for a fork of a running sequence: it runs at once when there is room, and keeps its blocks if not.
    void add_fork(Sequence& sequence);
    void remove(Sequence& sequence);
    /// Everything it computed is void (it has other modules now): its place in the order stays.
    void requeue(Sequence& sequence);

    /// Who may have rows in a step; null: everybody.
    using MayRun = std::function<bool(const Sequence&)>;
    /// Valid until the next call of any method.
    const StepPlan& plan(const MayRun& may_run = nullptr);
    /// The step threw before its copies were certain: running sequences that had no row in it are recomputed.
    void distrust_blocks();

    int running() const { return static_cast<int>(running_.size()); }
    int waiting() const { return static_cast<int>(waiting_.size()); }

private:
    void secure_running(const MayRun& may_run);
    void admit(const MayRun& may_run, int& budget);
    bool has_room_for(const Sequence& sequence) const;
    void give_rows(Sequence& sequence, int& budget);
    Sequence* youngest_with_blocks() const;
    void preempt(Sequence& sequence);

    SchedulerLimits limits_;
    BlockPool* pool_;
    std::vector<Sequence*> running_;  // in order
    std::vector<Sequence*> waiting_;  // in order
    StepPlan plan_;
};

}  // namespace attune
