#pragma once

#include "engine/kernels/cache_line.hpp"

#include <cstdint>

namespace attune {

/// Cache lines that lie together.
struct LineRun {
    const char* first = nullptr;
    std::int64_t before = 0;  ///< lines of the runs before it
};

/// Memory that is read right after a product: the product's loops ask for it while they multiply, at most a line with
/// each column. Asking changes no result. The weight's panels take equal shares of the lines, in order.
struct LinesAhead {
    const LineRun* runs = nullptr;  // [count]
    std::int64_t count = 0;
    std::int64_t lines = 0;        ///< of all runs
    std::int64_t panels = 1;       ///< of the whole weight
    std::int64_t first_panel = 0;  ///< of the call's, where it is one for a part of the weight
};

}  // namespace attune
