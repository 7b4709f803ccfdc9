#include "engine/kernels/cpu_kernels.hpp"

#include "engine/kernels/instruction_set.hpp"
#include "engine/kv/block_size.hpp"

#include <cstring>

namespace attune {

namespace kernels_v4 {
extern const CpuKernels kKernels;
}
namespace kernels_v3 {
extern const CpuKernels kKernels;
}
namespace kernels_baseline {
extern const CpuKernels kKernels;
}

std::size_t attention_scratch(int position, int head_dim) {
    const auto positions = (static_cast<std::size_t>(position) / kBlockTokens + 1) * kBlockTokens;
    return std::size_t{kMostTileQueries} * (positions + static_cast<std::size_t>(head_dim));
}

const CpuKernels& cpu_kernels() {
#if defined(__x86_64__)
    if (may_use(InstructionSet::v4)) return kernels_v4::kKernels;
    if (may_use(InstructionSet::v3)) return kernels_v3::kKernels;
#endif
    return kernels_baseline::kKernels;
}

const CpuKernels* cpu_kernels(const char* name) {
#if defined(__x86_64__)
    if (std::strcmp(name, kernels_v4::kKernels.name) == 0)
        return machine_runs(InstructionSet::v4) ? &kernels_v4::kKernels : nullptr;
    if (std::strcmp(name, kernels_v3::kKernels.name) == 0)
        return machine_runs(InstructionSet::v3) ? &kernels_v3::kKernels : nullptr;
#endif
    return std::strcmp(name, kernels_baseline::kKernels.name) == 0 ? &kernels_baseline::kKernels : nullptr;
}

Bf16 to_bf16(float value) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    // Rounding would turn some NaNs into infinities.
    if ((word & 0x7fffffffU) > 0x7f800000U) return Bf16{static_cast<std::uint16_t>((word >> 16) | 0x40U)};
    return Bf16{static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16)};
}

float from_bf16(Bf16 value) {
    const std::uint32_t word = static_cast<std::uint32_t>(value.bits) << 16;
    float out = 0;
    std::memcpy(&out, &word, sizeof out);
    return out;
}

}  // namespace attune
