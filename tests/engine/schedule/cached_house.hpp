#pragma once

#include "engine/kv/block_size.hpp"
#include "scheduled_house.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

inline std::vector<CacheWeights> under(std::string text) { return {{0, std::move(text)}}; }

/// What a position's keys and values would be: all tokens so far, each with the weights at its place.
inline std::vector<std::uint64_t> contents_of(const Sequence& sequence, int positions) {
    std::vector<std::uint64_t> contents;
    std::uint64_t hash = 17;
    for (int position = 0; position < positions; ++position) {
        std::string weights;
        for (const CacheWeights& at : sequence.modules().cache_weights)
            if (at.from <= position) weights = at.text;
        hash = hash * 1099511628211ULL + std::hash<std::string>{}(weights);
        hash = hash * 1099511628211ULL + static_cast<std::uint64_t>(sequence.token_at(position));
        contents.push_back(hash);
    }
    return contents;
}

/// A scheduler with keys and values that are hashes: each position's of all that it follows from, so a block taken over
/// from anybody else's context shows at once.
struct CachedHouse : ScheduledHouse {
    CachedHouse(SchedulerLimits limits, int blocks)
        : ScheduledHouse(limits, blocks), kv(static_cast<std::size_t>(blocks)) {}

    std::uint64_t& at(const Sequence& sequence, int position) {
        const BlockId block = sequence.blocks().blocks()[static_cast<std::size_t>(position / kBlockTokens)];
        return kv[static_cast<std::size_t>(value_of(block))][static_cast<std::size_t>(position % kBlockTokens)];
    }

    /// One step; counts every position that holds what another context left there, and every write into a block that is
    /// not the sequence's alone.
    Chosen step() {
        const StepPlan& plan = scheduler.plan();
        preempted += static_cast<int>(plan.preempted.size());
        const auto before = kv;
        for (const BlockCopy& copy : plan.copies)
            kv[static_cast<std::size_t>(value_of(copy.to))] = before[static_cast<std::size_t>(value_of(copy.from))];
        Chosen chosen;
        for (const ScheduledRows& rows : plan.rows) {
            Sequence& sequence = *rows.sequence;
            const int end = sequence.computed() + rows.rows;
            const auto contents = contents_of(sequence, end);
            for (int position = 0; position < end; ++position) {
                std::uint64_t& value = at(sequence, position);
                if (position < sequence.computed()) {
                    wrong += value != contents[static_cast<std::size_t>(position)];
                    continue;
                }
                const BlockId block = sequence.blocks().blocks()[static_cast<std::size_t>(position / kBlockTokens)];
                wrong += pool.owners(block) != 1 || pool.is_cached(block);
                value = contents[static_cast<std::size_t>(position)];
            }
            chosen.emplace_back(id_of(sequence), rows.rows);
        }
        for (const ScheduledRows& rows : plan.rows) {
            rows.sequence->advance(rows.rows);
            if (rows.sequence->pending() > 0) continue;
            rows.sequence->cache_blocks();
            rows.sequence->append(7);
        }
        return chosen;
    }

    std::vector<std::array<std::uint64_t, kBlockTokens>> kv;
    int preempted = 0;
    int wrong = 0;
};

}  // namespace attune
