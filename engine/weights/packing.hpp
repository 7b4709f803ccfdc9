#pragma once

#include "engine/kernels/cpu_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace attune {

/// Rows of float32 into panels, and back. A panel is [columns][kPanelOutputs]; see panel_index for the order inside.
/// `count` rows from a panel's start; missing rows of the last panel become zeros.
template <class Element>
void pack_panels(const float* rows, std::int64_t count, std::int64_t columns, Element* panels);

/// One row of a packed weight; `row` counts from the first panel's start.
template <class Element>
void unpack_row(const Element* panels, std::int64_t row, std::int64_t columns, float* into);

/// Replaces one row of a packed weight.
template <class Element>
void repack_row(const float* values, std::int64_t row, std::int64_t columns, Element* panels);

}  // namespace attune
