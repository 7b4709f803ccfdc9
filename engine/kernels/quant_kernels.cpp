#include "engine/kernels/quant_kernels.hpp"

#include "engine/kernels/instruction_set.hpp"

#include <cstring>
#include <initializer_list>

namespace attune {

namespace quant_avx512_vnni {
extern const QuantKernels kKernels;
}
namespace quant_avx_vnni {
extern const QuantKernels kKernels;
}
namespace quant_v3 {
extern const QuantKernels kKernels;
}
namespace quant_baseline {
extern const QuantKernels kKernels;
}

const QuantKernels& quant_kernels() {
    if (may_use(InstructionSet::best)) {
        for (const char* name : {"avx512-vnni", "avx-vnni"})
            if (const QuantKernels* set = quant_kernels(name)) return *set;
    }
#if defined(__x86_64__)
    if (may_use(InstructionSet::v3)) return quant_v3::kKernels;
#endif
    return quant_baseline::kKernels;
}

const QuantKernels* quant_kernels(const char* name) {
    const auto is = [name](const QuantKernels& set) { return std::strcmp(name, set.name) == 0; };
#if defined(__x86_64__)
    const bool v3 = __builtin_cpu_supports("x86-64-v3");
    if (is(quant_avx512_vnni::kKernels))
        return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vnni")
                   ? &quant_avx512_vnni::kKernels
                   : nullptr;
    if (is(quant_avx_vnni::kKernels))
        return v3 && __builtin_cpu_supports("avxvnni") ? &quant_avx_vnni::kKernels : nullptr;
    if (is(quant_v3::kKernels)) return v3 ? &quant_v3::kKernels : nullptr;
#endif
    return is(quant_baseline::kKernels) ? &quant_baseline::kKernels : nullptr;
}

}  // namespace attune
