#include "engine/schedule/batch_builder.hpp"

#include <algorithm>
#include <span>

namespace attune {
namespace {

void clear(Batch& batch) {
    batch.tokens.clear();
    batch.positions.clear();
    batch.sequences.clear();
    batch.blocks.clear();
    batch.segment_rows.assign(1, 0);
    batch.segment_offsets.assign(1, 0);
    batch.segment_slots.clear();
    batch.logit_rows.clear();
}

/// Rows up to `end` are touched by `slots`; joins the segment before when that has the same list.
void extend_segments(Batch& batch, int end, std::span<const SlotWeight> slots) {
    if (end == batch.segment_rows.back()) return;
    const int segments = batch.segments();
    if (segments > 0) {
        const auto first = static_cast<std::size_t>(batch.segment_offsets[static_cast<std::size_t>(segments) - 1]);
        const auto last_slots = std::span<const SlotWeight>(batch.segment_slots).subspan(first);
        if (std::ranges::equal(last_slots, slots)) {
            batch.segment_rows.back() = end;
            return;
        }
    }
    batch.segment_rows.push_back(end);
    batch.segment_slots.insert(batch.segment_slots.end(), slots.begin(), slots.end());
    batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
}

void add_sequence(Batch& batch, const Sequence& sequence, int rows) {
    const int first_row = batch.rows();
    const int first = sequence.computed();
    const int last = first + rows;
    const auto blocks = sequence.blocks().blocks().first(static_cast<std::size_t>(BlockTable::blocks_for(last)));
    batch.sequences.push_back({.first_row = first_row,
                               .rows = rows,
                               .context = first,
                               .first_block = static_cast<int>(batch.blocks.size()),
                               .blocks = static_cast<int>(blocks.size())});
    batch.blocks.insert(batch.blocks.end(), blocks.begin(), blocks.end());

    for (int position = first; position < last; ++position) {
        if (position >= sequence.logits_from()) batch.logit_rows.push_back(batch.rows());
        batch.tokens.push_back(sequence.tokens()[static_cast<std::size_t>(position)]);
        batch.positions.push_back(position);
    }

    const int touched_from = std::clamp(sequence.modules_from(), first, last);
    extend_segments(batch, first_row + touched_from - first, {});
    extend_segments(batch, first_row + rows, sequence.slots());
}

}  // namespace

void build_batch(const StepPlan& plan, Batch& batch) {
    clear(batch);
    for (const ScheduledRows& scheduled : plan.rows) add_sequence(batch, *scheduled.sequence, scheduled.rows);
}

}  // namespace attune
