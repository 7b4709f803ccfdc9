#include "engine/weights/packing.hpp"

#include <algorithm>
#include <bit>

namespace attune {

namespace {

float widen(float value) { return value; }
float widen(Bf16 value) { return from_bf16(value); }
constexpr int kTile = 16;  // columns

void narrow(float value, float& into) { into = value; }
// to_bf16() without a call or a branch, so that a tile is narrowed in vectors.
void narrow(float value, Bf16& into) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (word >> 16) | 0x40U;
    into.bits = static_cast<std::uint16_t>((word & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

}  // namespace

template <class Element>
void unpair_rows(const Element* paired, std::int64_t rows, std::int64_t group, std::int64_t columns, Element* into) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t within = row % group;
        const std::int64_t to = row - within + within / 2 + (within % 2) * (group / 2);
        std::copy_n(paired + row * columns, columns, into + to * columns);
    }
}

template <class Element>
void pack_panels(const float* rows, std::int64_t count, std::int64_t columns, Element* panels) {
    for (std::int64_t first = 0; first < count; first += kPanelOutputs) {
        // Tile by tile: a tile's turned columns stay in the first-level cache, and are narrowed in one run.
        const auto there = static_cast<int>(std::min<std::int64_t>(count - first, kPanelOutputs));
        for (std::int64_t k = 0; k < columns; k += kTile) {
            const int width = static_cast<int>(std::min<std::int64_t>(columns - k, kTile));
            float tile[kTile * kPanelOutputs] = {};
            for (int n = 0; n < there; ++n) {
                const float* row = rows + (first + n) * columns + k;
                const int index = panel_index(Element{}, n);
                for (int c = 0; c < width; ++c) tile[c * kPanelOutputs + index] = row[c];
            }
            Element* panel = panels + first * columns + k * kPanelOutputs;
            for (int i = 0; i < width * kPanelOutputs; ++i) narrow(tile[i], panel[i]);
        }
    }
}

void pack_bf16_panels(std::span<const std::byte> rows, std::int64_t count, std::int64_t columns, Bf16* panels) {
    // A vector's bytes lie aligned for any type.
    const auto* from = reinterpret_cast<const std::uint16_t*>(rows.data());
    for (std::int64_t first = 0; first < count; first += kPanelOutputs) {
        const auto there = static_cast<int>(std::min<std::int64_t>(count - first, kPanelOutputs));
        cpu_kernels().pack_bf16(from + first * columns, there, static_cast<int>(columns), panels + first * columns);
    }
}

template <class Element>
void unpack_row(const Element* panels, std::int64_t row, std::int64_t columns, float* into) {
    const Element* panel = panels + row / kPanelOutputs * kPanelOutputs * columns;
    const int index = panel_index(Element{}, static_cast<int>(row % kPanelOutputs));
    for (std::int64_t k = 0; k < columns; ++k) into[k] = widen(panel[k * kPanelOutputs + index]);
}

template <class Element>
void repack_row(const float* values, std::int64_t row, std::int64_t columns, Element* panels) {
    Element* panel = panels + row / kPanelOutputs * kPanelOutputs * columns;
    const int index = panel_index(Element{}, static_cast<int>(row % kPanelOutputs));
    for (std::int64_t k = 0; k < columns; ++k) narrow(values[k], panel[k * kPanelOutputs + index]);
}

template void unpair_rows<float>(const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void unpair_rows<std::byte>(const std::byte*, std::int64_t, std::int64_t, std::int64_t, std::byte*);
template void pack_panels<float>(const float*, std::int64_t, std::int64_t, float*);
template void pack_panels<Bf16>(const float*, std::int64_t, std::int64_t, Bf16*);
template void unpack_row<float>(const float*, std::int64_t, std::int64_t, float*);
template void unpack_row<Bf16>(const Bf16*, std::int64_t, std::int64_t, float*);
template void repack_row<float>(const float*, std::int64_t, std::int64_t, float*);
template void repack_row<Bf16>(const float*, std::int64_t, std::int64_t, Bf16*);

void round_to_bf16(std::span<float> values) {
    for (float& value : values) value = from_bf16(to_bf16(value));
}

}  // namespace attune
