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
    batch.segment_combine.clear();
    batch.logit_rows.clear();
}

/// Rows up to `end` are touched by the slots behind the last segment's; joins that segment when its list is the same.
void close_segment(Batch& batch, int end, Combine combine) {
    const auto begin = static_cast<std::size_t>(batch.segment_offsets.back());
    const auto all = std::span<const SlotWeight>(batch.segment_slots);
    if (batch.segments() > 0 && batch.segment_combine.back() == combine) {
        const auto before = static_cast<std::size_t>(*(batch.segment_offsets.end() - 2));
        if (std::ranges::equal(all.subspan(before, begin - before), all.subspan(begin))) {
            batch.segment_slots.resize(begin);
            batch.segment_rows.back() = end;
            return;
        }
    }
    batch.segment_rows.push_back(end);
    batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
    batch.segment_combine.push_back(combine);
}

/// Cuts a sequence's rows wherever one of its modules begins. `first` and `last`: positions, the rows end the batch.
void add_segments(Batch& batch, const SequenceModules& modules, int first, int last) {
    for (int position = first; position < last;) {
        int end = last;
        for (const SequenceModule& module : modules.list) {
            if (module.from <= position) {
                batch.segment_slots.push_back(module.slot);
            } else {
                end = std::min(end, module.from);
            }
        }
        close_segment(batch, batch.rows() - (last - end), modules.combine);
        position = end;
    }
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
        batch.tokens.push_back(sequence.token_at(position));
        batch.positions.push_back(position);
    }
    add_segments(batch, sequence.modules(), first, last);
}

}  // namespace

void build_batch(const StepPlan& plan, Batch& batch) {
    clear(batch);
    for (const ScheduledRows& scheduled : plan.rows) add_sequence(batch, *scheduled.sequence, scheduled.rows);
}

}  // namespace attune
