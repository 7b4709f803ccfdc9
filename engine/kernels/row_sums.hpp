#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace attune {

/// Rows are whole vectors of every instruction set; a table with few columns pays for no more than it needs.
constexpr std::size_t row_sums_stride(std::size_t columns) {
    const std::size_t step = columns <= 8 ? 8 : columns <= 16 ? 16 : 32;
    return (columns + step - 1) / step * step;
}

/// sums[c] = the sum of table[rows[i] * stride + c] over all i in their order, each value a bfloat16 as stored and each
/// sum a float32. Additions alone, so that every instruction set gives the same bits. `stride` = sums.size(), one of
/// row_sums_stride(); the table is [rows, stride].
void row_sums(const std::uint16_t* table, std::span<const std::uint32_t> rows, std::span<float> sums);

}  // namespace attune
