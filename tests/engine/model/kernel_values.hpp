#pragma once

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/quant_kernels.hpp"

#include <cstdint>
#include <vector>

namespace attune::testing {

/// Deterministic values.
class Values {
public:
    explicit Values(std::uint32_t seed) : state_(seed) {}
    /// 24 of them.
    std::uint32_t bits() {
        state_ = state_ * 1664525U + 1013904223U;
        return state_ >> 8;
    }
    /// In [-1, 1).
    float next() { return static_cast<float>(bits()) / 8388608.0F - 1.0F; }
    std::vector<float> many(std::size_t count) {
        std::vector<float> out(count);
        for (float& value : out) value = next();
        return out;
    }

private:
    std::uint32_t state_;
};

// The instruction sets that this machine can run.

inline std::vector<const CpuKernels*> kernel_sets() {
    std::vector<const CpuKernels*> out;
    for (const char* name : {"x86-64-v4", "x86-64-v3", "baseline"}) {
        if (const CpuKernels* set = cpu_kernels(name)) out.push_back(set);
    }
    return out;
}

inline std::vector<const QuantKernels*> quant_kernel_sets() {
    std::vector<const QuantKernels*> out;
    for (const char* name : {"avx512-vnni", "avx-vnni", "x86-64-v3", "baseline"}) {
        if (const QuantKernels* set = quant_kernels(name)) out.push_back(set);
    }
    return out;
}

}  // namespace attune::testing
