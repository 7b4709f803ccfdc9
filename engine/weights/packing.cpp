#include "engine/weights/packing.hpp"

#include <algorithm>

namespace attune {

namespace {

float widen(float value) { return value; }
float widen(Bf16 value) { return from_bf16(value); }
void narrow(float value, float& into) { into = value; }
void narrow(float value, Bf16& into) { into = to_bf16(value); }

}  // namespace

void unpair_rows(const float* paired, std::int64_t rows, std::int64_t group, std::int64_t columns, float* into) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t within = row % group;
        const std::int64_t to = row - within + within / 2 + (within % 2) * (group / 2);
        std::copy_n(paired + row * columns, columns, into + to * columns);
    }
}

template <class Element>
void pack_panels(const float* rows, std::int64_t count, std::int64_t columns, Element* panels) {
    for (std::int64_t first = 0; first < count; first += kPanelOutputs) {
        Element* panel = panels + first * columns;
        for (int n = 0; n < kPanelOutputs; ++n) {
            const int index = panel_index(Element{}, n);
            const bool there = first + n < count;
            const float* row = rows + (first + n) * columns;
            for (std::int64_t k = 0; k < columns; ++k) narrow(there ? row[k] : 0.0F, panel[k * kPanelOutputs + index]);
        }
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
