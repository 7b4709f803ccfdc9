#include "engine/kernels/instruction_set.hpp"

#include <atomic>

namespace attune {

namespace {

std::atomic<InstructionSet>& limit() {
    static std::atomic<InstructionSet> most{InstructionSet::best};
    return most;
}

}  // namespace

std::optional<InstructionSet> parse_instruction_set(std::string_view name) {
    if (name == "baseline") return InstructionSet::baseline;
    if (name == "x86-64-v3") return InstructionSet::v3;
    if (name == "x86-64-v4") return InstructionSet::v4;
    if (name == "auto") return InstructionSet::best;
    return std::nullopt;
}

bool machine_runs(InstructionSet set) {
#if defined(__x86_64__)
    if (set == InstructionSet::v3) return __builtin_cpu_supports("x86-64-v3");
    if (set == InstructionSet::v4) return __builtin_cpu_supports("x86-64-v4");
    return true;
#else
    return set == InstructionSet::baseline || set == InstructionSet::best;
#endif
}

void limit_instruction_set(InstructionSet most) { limit().store(most, std::memory_order_relaxed); }

InstructionSet instruction_set_limit() { return limit().load(std::memory_order_relaxed); }

bool may_use(InstructionSet set) { return set <= instruction_set_limit() && machine_runs(set); }

}  // namespace attune
