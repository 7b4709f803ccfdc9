#define ATTUNE_KERNEL_SET lora_v4
#define ATTUNE_KERNEL_NAME "x86-64-v4"
#include "engine/kernels/lora_impl.hpp"
