#pragma once

#include <cstddef>
#include <vector>

namespace attune {

/// [rows, columns] -> [columns, rows]
inline std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
    std::vector<float> out(values.size());
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) out[c * rows + r] = values[r * columns + c];
    return out;
}

}  // namespace attune
