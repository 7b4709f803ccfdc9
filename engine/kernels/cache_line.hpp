#pragma once

#include <cstddef>

namespace attune {

/// Bytes that one prefetch brings.
inline constexpr std::ptrdiff_t kCacheLine = 64;

}  // namespace attune
