#define ATTUNE_KERNEL_SET row_sums_v3
#include "engine/kernels/row_sums_impl.hpp"
