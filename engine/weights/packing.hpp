#pragma once

#include "engine/kernels/cpu_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace attune {

/// llama.cpp's converter stores the rows of a head as rotary pairs: 0, n/2, 1, n/2 + 1, … Brings groups of `group` rows
/// (a multiple of them; each of `columns` values, or bytes of blocks) back into Hugging Face's order, halves one after
/// the other.
template <class Element>
void unpair_rows(const Element* paired, std::int64_t rows, std::int64_t group, std::int64_t columns, Element* into);

/// Rows of float32 into panels, and back. A panel is [columns][kPanelOutputs]; see panel_index for the order inside.
/// `count` rows from a panel's start; missing rows of the last panel become zeros.
template <class Element>
void pack_panels(const float* rows, std::int64_t count, std::int64_t columns, Element* panels);

/// The same from `count` rows of bfloat16 as a file holds them, bit for bit.
void pack_bf16_panels(std::span<const std::byte> rows, std::int64_t count, std::int64_t columns, Bf16* panels);

/// One row of a packed weight; `row` counts from the first panel's start.
template <class Element>
void unpack_row(const Element* panels, std::int64_t row, std::int64_t columns, float* into);

/// Replaces one row of a packed weight.
template <class Element>
void repack_row(const float* values, std::int64_t row, std::int64_t columns, Element* panels);

/// Each value becomes what a bf16 weight holds of it.
void round_to_bf16(std::span<float> values);

}  // namespace attune
