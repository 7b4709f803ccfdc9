#define ATTUNE_QUANT_SET quant_avx512_vnni
#define ATTUNE_QUANT_ROWS 6
#define ATTUNE_QUANT_NAME "avx512-vnni"
#include "engine/kernels/quant_kernels_impl.hpp"
