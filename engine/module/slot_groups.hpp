#pragma once

#include "engine/schedule/batch.hpp"

#include <cstdint>
#include <vector>

namespace attune {

/// Rows of a step that one module touches, ascending, each with its weight there.
struct SlotGroup {
    SlotId slot{};
    std::vector<std::int32_t> rows;
    std::vector<float> weights;
};

/// A step's rows grouped by slot, level by level: level i holds each row's i-th module (weight 0 is none). A row so
/// gets its modules in its own order whatever the other rows ask for, and at most one of them per level.
using SlotLevels = std::vector<std::vector<SlotGroup>>;

SlotLevels group_by_slot(const Batch& batch);

}  // namespace attune
