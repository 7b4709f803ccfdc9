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
    std::vector<ScheduledRows> rows;        ///< equal slot lists lie side by side
    std::vector<BlockCopy> copies;          ///< to be done before the step's forward
    std::vector<Sequence*> preempted = {};  ///< lost their blocks, wait again
    std::vector<Sequence*> wanted = {};     ///< parked, and there would be room for them now
    bool prompts_held = false;              ///< PromptRows, not the step's size, ended the room for prompts
};

/// Decides what a step computes; holds integers only. Sequences join and leave between any two steps.
///
/// A sequence is admitted when blocks for all its pending tokens are free, so two half-read prompts never starve each
/// other. Decoding sequences get their rows first, prompts share what is left of `step_tokens`. When a running sequence
/// needs a block and none is free, the youngest that holds any gives all of its own back and is recomputed later.
///
/// Within one priority the sets of modules take turns: next is the earliest of the set with the fewest running, so a
/// hot module never keeps the others out. One for which there are no blocks is passed, but by kPatience at most.
class Scheduler {
public:
    static constexpr int kPatience = 16;  ///< sequences that may pass one without room
    static constexpr int kTries = 8;      ///< sequences without room that one step looks at

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
    /// How many rows of prompts a step may have beside so many decode rows; null: what is left of step_tokens.
    using PromptRows = std::function<int(int decode_rows)>;
    /// Valid until the next call of any method.
    const StepPlan& plan(const MayRun& may_run = nullptr, const PromptRows& prompt_rows = nullptr);
    /// The step threw before its copies were certain: running sequences that had no row in it are recomputed.
    void distrust_blocks();

    int running() const { return static_cast<int>(running_.size()); }
    int waiting() const { return static_cast<int>(waiting_.size()); }

private:
    void secure_running(const MayRun& may_run);
    void admit(const MayRun& may_run, int& budget);
    /// Who has its turn and room; null: nobody.
    Sequence* next_to_admit(const MayRun& may_run);
    /// A set of modules that running or waiting sequences have.
    struct Turn {
        const SequenceModules* modules = nullptr;
        int running = 0;
        Sequence* earliest = nullptr;  ///< of those that wait
    };
    Turn& turn_of(const Sequence& sequence);
    bool has_room_for(const Sequence& sequence) const;
    void give_rows(Sequence& sequence, int& budget);
    Sequence* youngest_with_blocks() const;
    void preempt(Sequence& sequence);

    SchedulerLimits limits_;
    BlockPool* pool_;
    std::vector<Sequence*> running_;  // in order
    std::vector<Sequence*> waiting_;  // in order
    StepPlan plan_;
    std::vector<Turn> turns_;         // of this plan
    std::vector<Sequence*> no_room_;  // of this plan: looked at in vain
};

}  // namespace attune
