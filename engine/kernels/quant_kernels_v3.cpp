#define ATTUNE_QUANT_SET quant_v3
#define ATTUNE_QUANT_ROWS 4
#define ATTUNE_QUANT_NAME "x86-64-v3"
#include "engine/kernels/quant_kernels_impl.hpp"
