#define ATTUNE_QUANT_SET quant_avx_vnni
#define ATTUNE_QUANT_ROWS 4
#define ATTUNE_QUANT_NAME "avx-vnni"
#include "engine/kernels/quant_kernels_impl.hpp"
