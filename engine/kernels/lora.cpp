#include "engine/kernels/lora.hpp"

#include "engine/kernels/instruction_set.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace attune {

namespace lora_v4 {
extern const LoraKernels kLoraKernels;
}
namespace lora_v3 {
extern const LoraKernels kLoraKernels;
}
namespace lora_baseline {
extern const LoraKernels kLoraKernels;
}

namespace {

// Nearest even. Values of a module are finite, but a rounding up to infinity is possible and stays one.
std::uint16_t narrow(float value, std::uint16_t) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
}

float narrow(float value, float) { return value; }

template <class Element>
void pack(const float* b, int out, int rank, Element* panels) {
    const auto width = static_cast<std::size_t>(rank);
    std::fill_n(panels, packed_b_elements(out, rank), Element{});
    for (int output = 0; output < out; ++output) {
        const std::size_t panel = static_cast<std::size_t>(output / kLoraPanelOutputs) * width * kLoraPanelOutputs;
        const auto lane = static_cast<std::size_t>(output % kLoraPanelOutputs);
        for (std::size_t j = 0; j < width; ++j)
            panels[panel + j * kLoraPanelOutputs + lane] =
                narrow(b[static_cast<std::size_t>(output) * width + j], Element{});
    }
}

}  // namespace

const LoraKernels& lora_kernels() {
#if defined(__x86_64__)
    if (may_use(InstructionSet::v4)) return lora_v4::kLoraKernels;
    if (may_use(InstructionSet::v3)) return lora_v3::kLoraKernels;
#endif
    return lora_baseline::kLoraKernels;
}

const LoraKernels* lora_kernels(const char* name) {
#if defined(__x86_64__)
    if (std::strcmp(name, lora_v4::kLoraKernels.name) == 0)
        return machine_runs(InstructionSet::v4) ? &lora_v4::kLoraKernels : nullptr;
    if (std::strcmp(name, lora_v3::kLoraKernels.name) == 0)
        return machine_runs(InstructionSet::v3) ? &lora_v3::kLoraKernels : nullptr;
#endif
    return std::strcmp(name, lora_baseline::kLoraKernels.name) == 0 ? &lora_baseline::kLoraKernels : nullptr;
}

void pack_lora_b(const float* b, int out, int rank, float* panels) { pack(b, out, rank, panels); }
void pack_lora_b(const float* b, int out, int rank, std::uint16_t* panels) { pack(b, out, rank, panels); }

void to_bf16_array(const float* from, std::size_t count, std::uint16_t* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = narrow(from[i], std::uint16_t{});
}

}  // namespace attune
