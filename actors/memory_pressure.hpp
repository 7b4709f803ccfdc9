#pragma once

namespace attune {

/// 0..1, the larger of two shares: the process group's anonymous memory of its cgroup limit (0 when there is none), and
/// this process's of the machine's memory. Page cache does not count: the kernel takes it back by itself.
double memory_pressure();

}  // namespace attune
