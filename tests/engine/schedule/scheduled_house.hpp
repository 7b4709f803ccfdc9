#pragma once

#include "engine/schedule/scheduler.hpp"
#include "support/sequences.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace attune {

/// Rows chosen per request id, in the plan's order.
using Chosen = std::vector<std::pair<int, int>>;

inline int id_of(const Sequence& sequence) { return static_cast<int>(value_of(sequence.request())); }

/// A scheduler whose sequences decode for ever unless a test removes them; what a step is, its users say.
struct ScheduledHouse {
    ScheduledHouse(SchedulerLimits limits, int blocks) : pool(blocks), scheduler(limits, pool) {}

    Sequence& add(SequenceSpec spec) {
        const int id = spec.id;
        sequences[id] = make_sequence(pool, std::move(spec));
        scheduler.add(*sequences[id]);
        return *sequences[id];
    }
    void finish(int id) {
        scheduler.remove(*sequences.at(id));
        sequences.erase(id);
    }

    BlockPool pool;
    Scheduler scheduler;
    std::map<int, std::unique_ptr<Sequence>> sequences;
};

}  // namespace attune
