#include "engine/module/slot_groups.hpp"

#include <algorithm>

namespace attune {
namespace {

SlotGroup& group_of(std::vector<SlotGroup>& level, SlotId slot) {
    const auto at =
        std::find_if(level.begin(), level.end(), [&](const SlotGroup& group) { return group.slot == slot; });
    if (at != level.end()) return *at;
    level.push_back({slot, {}, {}});
    return level.back();
}

}  // namespace

std::vector<RowSegment> segments_of(const Batch& batch) {
    std::vector<RowSegment> segments;
    for (int index = 0; index < batch.segments(); ++index) {
        const auto at = static_cast<std::size_t>(index);
        RowSegment segment;
        segment.first = batch.segment_rows[at];
        segment.rows = batch.segment_rows[at + 1] - segment.first;
        if (segment.rows == 0) continue;
        for (std::int32_t i = batch.segment_offsets[at]; i < batch.segment_offsets[at + 1]; ++i) {
            const SlotWeight& applied = batch.segment_slots[static_cast<std::size_t>(i)];
            if (applied.weight != 0.0F) segment.slots.push_back(applied);
        }
        if (at < batch.segment_combine.size()) segment.combine = batch.segment_combine[at];
        segments.push_back(std::move(segment));
    }
    return segments;
}

std::vector<RowSegment> segments_of(const Batch& batch, std::span<const std::int32_t> rows) {
    std::vector<RowSegment> segments;
    for (RowSegment& segment : segments_of(batch)) {
        const auto first = std::lower_bound(rows.begin(), rows.end(), segment.first);
        const auto last = std::lower_bound(first, rows.end(), segment.first + segment.rows);
        if (first == last) continue;
        segment.first = static_cast<int>(first - rows.begin());
        segment.rows = static_cast<int>(last - first);
        segments.push_back(std::move(segment));
    }
    return segments;
}

SlotLevels group_by_slot(std::span<const RowSegment> segments) {
    SlotLevels levels;
    for (const RowSegment& segment : segments) {
        for (std::size_t depth = 0; depth < segment.slots.size(); ++depth) {
            if (levels.size() == depth) levels.emplace_back();
            const SlotWeight& applied = segment.slots[depth];
            SlotGroup& group = group_of(levels[depth], applied.slot);
            for (int row = segment.first; row < segment.first + segment.rows; ++row) {
                group.rows.push_back(row);
                group.weights.push_back(applied.weight);
            }
        }
    }
    return levels;
}

}  // namespace attune
