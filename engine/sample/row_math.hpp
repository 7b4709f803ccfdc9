#pragma once

#include "attune/ids.hpp"

#include <cstddef>
#include <span>

namespace attune {

// The passes over a whole row of logits (up to 150k values, for each token of each sequence). Each is compiled for
// several instruction sets and chosen once at start; a row's result depends on nothing but the row.

struct RowMax {
    float value = 0;      ///< largest value; not-a-numbers are passed over
    bool finite = false;  ///< every value is finite
};
RowMax row_max(std::span<const float> row);

/// Index of the first value equal to `value`, the row's size when there is none.
std::size_t first_equal(std::span<const float> row, float value);

/// How many values are greater.
int count_greater(std::span<const float> row, float value);

/// Maximum of each run of kRunLength values; `maxima` holds runs_of(row) of them.
inline constexpr std::size_t kRunLength = 64;
inline std::size_t runs_of(std::span<const float> row) { return (row.size() + kRunLength - 1) / kRunLength; }
void run_maxima(std::span<const float> row, std::span<float> maxima);

/// Sum of exp(row[i] - max), relative error below 1e-6. `max` is the row's.
double exp_sum(std::span<const float> row, float max);

/// weights[i] = exp((row[i] - max) * scale), or 0 where that is below `floor`; sums of each run of kRunLength go to
/// `sums`. Returns their total.
double exp_weights(std::span<const float> row, float max, float scale, float floor, std::span<float> weights,
                   std::span<double> sums);

/// exp(x) for x <= 0 with a relative error below 3e-7; 0 below -88.
float exp_nonpositive(float x);

}  // namespace attune
