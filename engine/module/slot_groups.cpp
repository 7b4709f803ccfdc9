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

SlotLevels group_by_slot(const Batch& batch) {
    SlotLevels levels;
    for (int segment = 0; segment < batch.segments(); ++segment) {
        const auto at = static_cast<std::size_t>(segment);
        std::size_t depth = 0;
        for (std::int32_t i = batch.segment_offsets[at]; i < batch.segment_offsets[at + 1]; ++i) {
            const SlotWeight& applied = batch.segment_slots[static_cast<std::size_t>(i)];
            if (applied.weight == 0.0F) continue;
            if (levels.size() == depth) levels.emplace_back();
            SlotGroup& group = group_of(levels[depth++], applied.slot);
            for (std::int32_t row = batch.segment_rows[at]; row < batch.segment_rows[at + 1]; ++row) {
                group.rows.push_back(row);
                group.weights.push_back(applied.weight);
            }
        }
    }
    // A segment without rows leaves an empty group.
    for (auto& level : levels) std::erase_if(level, [](const SlotGroup& group) { return group.rows.empty(); });
    return levels;
}

}  // namespace attune
