#define ATTUNE_KERNEL_SET lora_v3
#define ATTUNE_KERNEL_NAME "x86-64-v3"
#include "engine/kernels/lora_impl.hpp"
