#pragma once

namespace attune {

/// The process group's anonymous memory against its cgroup limit, 0..1; 0 when there is no limit. Page cache does not
/// count: the kernel takes it back by itself.
double memory_pressure();

}  // namespace attune
