#include "engine/schedule/scheduler.hpp"

#include "attune/assert.hpp"

#include <algorithm>
#include <optional>

namespace attune {
namespace {

void insert_in_order(std::vector<Sequence*>& list, Sequence* sequence) {
    const auto later = [](const SequenceOrder& order, const Sequence* other) { return order < other->order(); };
    list.insert(std::upper_bound(list.begin(), list.end(), sequence->order(), later), sequence);
}

bool fewer_modules(const SequenceModules& a, const SequenceModules& b) {
    const auto fewer = [](const SequenceModule& x, const SequenceModule& y) {
        return x.slot.slot != y.slot.slot ? x.slot.slot < y.slot.slot : x.slot.weight < y.slot.weight;
    };
    if (std::ranges::lexicographical_compare(a.list, b.list, fewer)) return true;
    return a.combine < b.combine && !std::ranges::lexicographical_compare(b.list, a.list, fewer);
}

}  // namespace

void Scheduler::add(Sequence& sequence) {
    ATTUNE_ASSERT(sequence.missing_blocks() <= pool_->total_blocks());
    insert_in_order(waiting_, &sequence);
}

void Scheduler::add_fork(Sequence& sequence) {
    insert_in_order(running() < limits_.max_sequences ? running_ : waiting_, &sequence);
}

void Scheduler::remove(Sequence& sequence) {
    std::erase(running_, &sequence);
    std::erase(waiting_, &sequence);
}

void Scheduler::requeue(Sequence& sequence) {
    remove(sequence);
    sequence.restart();
    insert_in_order(waiting_, &sequence);
}

const StepPlan& Scheduler::plan(const MayRun& may_run, const PromptRows& prompt_rows) {
    plan_.rows.clear();
    plan_.copies.clear();
    plan_.preempted.clear();
    plan_.wanted.clear();

    secure_running(may_run);
    int budget = limits_.step_tokens;
    const auto give_running = [&](bool decoding) {
        for (Sequence* sequence : running_) {
            if (sequence->is_decoding() == decoding && (!may_run || may_run(*sequence))) give_rows(*sequence, budget);
        }
    };
    give_running(true);
    const int decode_rows = limits_.step_tokens - budget;
    const int most = prompt_rows ? prompt_rows(decode_rows) : budget;
    const bool is_held = most < budget;
    budget = std::min(budget, most);
    give_running(false);
    // Who just lost its blocks must not take them back in the same breath.
    if (plan_.preempted.empty()) admit(may_run, budget);
    plan_.prompts_held = is_held && budget == 0;

    std::stable_sort(plan_.rows.begin(), plan_.rows.end(), [](const ScheduledRows& a, const ScheduledRows& b) {
        return fewer_modules(a.sequence->modules(), b.sequence->modules());
    });
    return plan_;
}

void Scheduler::secure_running(const MayRun& may_run) {
    // A victim is never before the one that asks, so indices below i stay what they are.
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Sequence* sequence = running_[i];
        if (may_run && !may_run(*sequence)) continue;
        while (!sequence->reserve(plan_.copies)) {
            Sequence* victim = youngest_with_blocks();
            ATTUNE_ASSERT(victim != nullptr);
            preempt(*victim);
            if (victim == sequence) break;
        }
    }
}

void Scheduler::admit(const MayRun& may_run, int& budget) {
    if (waiting_.empty() || budget <= 0 || running() >= limits_.max_sequences) return;
    turns_.clear();
    no_room_.clear();
    for (const Sequence* sequence : running_) ++turn_of(*sequence).running;
    while (budget > 0 && running() < limits_.max_sequences) {
        Sequence* sequence = next_to_admit(may_run);
        if (sequence == nullptr) return;
        while (!sequence->reserve(plan_.copies)) {
            // Nobody runs, so the blocks are with forks that wait behind this one.
            Sequence* victim = running_.empty() ? youngest_with_blocks() : nullptr;
            if (victim == nullptr) return;
            preempt(*victim);
        }
        for (Sequence* passed : no_room_)
            if (passed->order() < sequence->order()) passed->note_passed(passed->passed() + 1);
        sequence->note_passed(0);
        ++turn_of(*sequence).running;
        std::erase(waiting_, sequence);
        insert_in_order(running_, sequence);
        give_rows(*sequence, budget);
    }
}

Scheduler::Turn& Scheduler::turn_of(const Sequence& sequence) {
    const auto same = [&](const Turn& turn) { return turn.modules->list == sequence.modules().list; };
    const auto found = std::find_if(turns_.begin(), turns_.end(), same);
    return found != turns_.end() ? *found : turns_.emplace_back(Turn{&sequence.modules()});
}

Sequence* Scheduler::next_to_admit(const MayRun& may_run) {
    const auto holds = [](const std::vector<Sequence*>& list, const Sequence* one) {
        return std::find(list.begin(), list.end(), one) != list.end();
    };
    while (no_room_.size() < kTries) {
        for (Turn& turn : turns_) turn.earliest = nullptr;
        std::optional<int> priority;  // a lower one passes nobody
        for (Sequence* sequence : waiting_) {
            if (priority && sequence->order().priority != *priority) break;
            if ((may_run && !may_run(*sequence)) || holds(plan_.wanted, sequence)) continue;
            priority = sequence->order().priority;
            if (holds(no_room_, sequence)) continue;
            if (Turn& turn = turn_of(*sequence); turn.earliest == nullptr) turn.earliest = sequence;
        }
        Sequence* next = nullptr;
        int running_of_next = 0;
        for (const Turn& turn : turns_) {
            if (turn.earliest == nullptr) continue;
            const bool sooner = next == nullptr || turn.running < running_of_next ||
                                (turn.running == running_of_next && turn.earliest->order() < next->order());
            if (!sooner) continue;
            next = turn.earliest;
            running_of_next = turn.running;
        }
        if (next == nullptr) return nullptr;
        if (!has_room_for(*next)) {
            no_room_.push_back(next);
            if (next->passed() >= kPatience) return nullptr;
        } else if (next->is_parked()) {
            plan_.wanted.push_back(next);
        } else {
            return next;
        }
    }
    return nullptr;
}

bool Scheduler::has_room_for(const Sequence& sequence) const {
    if (running_.empty()) return true;
    // A block kept for each running sequence: otherwise the newcomer would be thrown out before it has read its prompt.
    return sequence.missing_blocks() + running() <= pool_->free_blocks();
}

void Scheduler::give_rows(Sequence& sequence, int& budget) {
    const int rows = std::min(sequence.pending(), budget);
    if (rows == 0) return;
    budget -= rows;
    plan_.rows.push_back({&sequence, rows});
}

Sequence* Scheduler::youngest_with_blocks() const {
    Sequence* youngest = nullptr;
    for (const auto* list : {&running_, &waiting_}) {
        for (Sequence* sequence : *list) {
            if (!sequence->has_blocks()) continue;
            if (youngest == nullptr || youngest->order() < sequence->order()) youngest = sequence;
        }
    }
    return youngest;
}

void Scheduler::preempt(Sequence& sequence) {
    // Its blocks may be handed out again in this very plan, so none may be the target of a copy. None is: blocks are
    // secured in order, a victim comes after the one that asks, and who fails itself fails at its only copy.
    ATTUNE_ASSERT(std::none_of(plan_.copies.begin(), plan_.copies.end(),
                               [&](const BlockCopy& copy) { return sequence.blocks().holds(copy.to); }));
    requeue(sequence);
    plan_.preempted.push_back(&sequence);
}

void Scheduler::distrust_blocks() {
    std::vector<Sequence*> idle;
    for (Sequence* sequence : running_) {
        const auto has_rows = [&](const ScheduledRows& rows) { return rows.sequence == sequence; };
        if (std::none_of(plan_.rows.begin(), plan_.rows.end(), has_rows)) idle.push_back(sequence);
    }
    for (Sequence* sequence : idle) requeue(*sequence);
}

}  // namespace attune
