#define ATTUNE_KERNEL_SET row_sums_v4
#include "engine/kernels/row_sums_impl.hpp"
