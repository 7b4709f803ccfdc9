#define ATTUNE_KERNEL_SET row_sums_baseline
#include "engine/kernels/row_sums_impl.hpp"
