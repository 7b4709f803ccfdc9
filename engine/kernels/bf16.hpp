#pragma once

#include <cstdint>

namespace attune {

/// A bfloat16 as stored: the upper half of a float32.
struct Bf16 {
    std::uint16_t bits;
};

}  // namespace attune
