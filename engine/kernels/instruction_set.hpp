#pragma once

#include <optional>
#include <string_view>

namespace attune {

/// What the kernels are compiled for, each with all before it. `best`: whatever the machine has beyond (VNNI).
enum class InstructionSet { baseline, v3, v4, best };

/// "baseline", "x86-64-v3" (AVX2 and FMA), "x86-64-v4" (AVX-512) or "auto".
std::optional<InstructionSet> parse_instruction_set(std::string_view name);

bool machine_runs(InstructionSet set);

/// The most that the process's kernels use from the next call on; one that the machine cannot run counts as the best it
/// can. A step's bits differ between sets within rounding, so it is set before the first.
void limit_instruction_set(InstructionSet most);
InstructionSet instruction_set_limit();

/// True when a kernel compiled for `set` may be used: the machine runs it and the limit allows it.
bool may_use(InstructionSet set);

}  // namespace attune
