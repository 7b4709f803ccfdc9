#define ATTUNE_KERNEL_SET kernels_baseline
#define ATTUNE_KERNEL_ROWS 1
#define ATTUNE_KERNEL_NAME "baseline"
#include "engine/kernels/cpu_kernels_impl.hpp"
