#define ATTUNE_KERNEL_SET kernels_v4
#define ATTUNE_KERNEL_ROWS 14
#define ATTUNE_KERNEL_NAME "x86-64-v4"
#include "engine/kernels/cpu_kernels_impl.hpp"
