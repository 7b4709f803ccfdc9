#define ATTUNE_KERNEL_SET kernels_v3
#define ATTUNE_KERNEL_ROWS 3
#define ATTUNE_KERNEL_NAME "x86-64-v3"
#include "engine/kernels/cpu_kernels_impl.hpp"
