#pragma once

#include "attune/request.hpp"
#include "engine/schedule/batch.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace attune {

/// Consecutive rows with the same modules, in the request's order; weight 0 is left out. Empty: the base.
struct RowSegment {
    int first = 0;
    int rows = 0;
    std::vector<SlotWeight> slots;
    Combine combine = Combine::sequence;
};

/// The step's segments, without empty ones. They cover every row that a module touches.
std::vector<RowSegment> segments_of(const Batch& batch);
/// The same for a selection of the step's rows (ascending), counted by their place in it.
std::vector<RowSegment> segments_of(const Batch& batch, std::span<const std::int32_t> rows);

/// Rows of a step that one module touches, ascending, each with its weight there.
struct SlotGroup {
    SlotId slot{};
    std::vector<std::int32_t> rows;
    std::vector<float> weights;
};

/// A step's rows grouped by slot, level by level: level i holds each row's i-th module. A row so gets its modules in
/// its own order whatever the other rows ask for, and at most one of them per level.
using SlotLevels = std::vector<std::vector<SlotGroup>>;

SlotLevels group_by_slot(std::span<const RowSegment> segments);

}  // namespace attune
