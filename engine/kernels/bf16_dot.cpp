#include "engine/kernels/bf16_dot.hpp"

#include "engine/kernels/instruction_set.hpp"

namespace attune {

namespace bf16_dot_avx512 {
extern const Bf16DotKernels kKernels;
}

const Bf16DotKernels* bf16_dot_kernels() {
#if defined(__x86_64__)
    if (may_use(InstructionSet::best) && machine_runs(InstructionSet::v4) && __builtin_cpu_supports("avx512bf16"))
        return &bf16_dot_avx512::kKernels;
#endif
    return nullptr;
}

}  // namespace attune
