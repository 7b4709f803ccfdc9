#pragma once

#include "engine/files/stored_tensor.hpp"
#include "engine/kernels/quant_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace attune {

/// Whole rows of a quantised matrix, before they are packed. Columns are a multiple of kQuantGroup.
struct QuantRows {
    Quant quant = Quant::int8;
    std::int64_t columns = 0;
    std::vector<std::uint8_t> codes;  // [rows, columns]
    std::vector<float> scales;        // [rows, columns / kQuantGroup], values of float16
    std::vector<float> minima;        // the same; empty but for int4_min

    void resize(std::int64_t rows);
    std::int64_t rows() const { return static_cast<std::int64_t>(codes.size()) / columns; }
};

/// What holds a stored type's own codes: Q8_0 int8, Q4_0 int4, Q4_1 and Q4_K int4_min (their scales rounded to float16,
/// the files' products of two numbers have up to 17 bits). `none` for all others.
constexpr Quant quant_of(StoredType type) {
    switch (type) {
        case StoredType::q8_0:
            return Quant::int8;
        case StoredType::q4_0:
            return Quant::int4;
        case StoredType::q4_1:
        case StoredType::q4_k:
            return Quant::int4_min;
        default:
            return Quant::none;
    }
}

/// Rounds to the nearest of 255, 16 and 16 steps: between -peak and peak of a group (int8), from its value of the
/// largest magnitude on (int4), between its minimum and maximum, or where the squared error is less (int4_min). values:
/// [rows, columns]; `into` knows its quant and columns. False when a value is not finite, or so large that its scale is
/// no float16.
bool quantise(std::span<const float> values, QuantRows& into);

/// Whole blocks of a type that quant_of() names, as they lie in the file. False when a scale is not finite.
bool take_blocks(StoredType type, std::span<const std::byte> blocks, QuantRows& into);

/// What the codes stand for: [rows, columns].
void dequantise(const QuantRows& from, std::span<float> into);

/// Into panels (see quant_kernels.hpp) from a panel's start; missing rows of the last one become zeros.
void pack_panels(const QuantRows& from, std::byte* panels);

/// One row of a packed weight; `row` counts from the first panel's start.
void unpack_row(Quant quant, const std::byte* panels, std::int64_t row, std::int64_t columns, float* into);

/// Bytes of a packed row: a 32nd of a panel.
constexpr std::uint64_t packed_row_bytes(Quant quant, std::int64_t columns) {
    return static_cast<std::uint64_t>(columns / kQuantGroup) * (group_bytes(quant) / kPanelOutputs);
}

}  // namespace attune
