#define ATTUNE_QUANT_SET quant_baseline
#define ATTUNE_QUANT_ROWS 4
#define ATTUNE_QUANT_NAME "baseline"
#include "engine/kernels/quant_kernels_impl.hpp"
