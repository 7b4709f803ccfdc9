#define ATTUNE_KERNEL_SET lora_baseline
#define ATTUNE_KERNEL_NAME "baseline"
#include "engine/kernels/lora_impl.hpp"
