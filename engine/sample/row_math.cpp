#include "engine/sample/row_math.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

// Sanitizers cannot run before the resolvers that choose a clone.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ATTUNE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATTUNE_CLONES
#endif

namespace attune {
namespace {

// Independent lanes: the compiler may not reorder a float reduction itself.
constexpr std::size_t kLanes = 32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

__attribute__((always_inline)) inline float exp_lane(float x) {
    constexpr float kLog2E = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;  // few bits, so that n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;
    // Far enough below for the power to become 0. One comparison only: two make the compiler branch, not vectorise.
    const float clamped = x < -104.0F ? -104.0F : x;
    const auto n = static_cast<std::int32_t>(clamped * kLog2E - 0.5F);  // rounds to nearest, as the argument is <= 0
    const auto n_float = static_cast<float>(n);
    const float r = (clamped - n_float * kLn2High) - n_float * kLn2Low;
    // Cephes' expf: minimax on [-ln 2 / 2, ln 2 / 2].
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    const float e = p * r * r + r + 1.0F;
    const std::int32_t exponent = n + 127 > 0 ? n + 127 : 0;
    return e * std::bit_cast<float>(exponent << 23);
}

/// Halves of halves: a fixed order of additions on every machine. The runs' sums are joined in double, as a whole row
/// in float would lose digits.
__attribute__((always_inline)) inline float lane_sum(float* lanes) {
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
        for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    }
    return lanes[0];
}

}  // namespace

ATTUNE_CLONES RowMax row_max(std::span<const float> row) {
    constexpr std::uint32_t kExponent = 0x7F800000;
    float lanes[kLanes];
    std::uint32_t odd[kLanes] = {};
    std::fill_n(lanes, kLanes, kLowest);
    const float* values = row.data();
    std::size_t i = 0;
    for (; i + kLanes <= row.size(); i += kLanes) {
        for (std::size_t j = 0; j < kLanes; ++j) {
            const float x = values[i + j];
            lanes[j] = x > lanes[j] ? x : lanes[j];
            odd[j] |= (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent ? 1U : 0U;
        }
    }
    float max = kLowest;
    std::uint32_t any_odd = 0;
    for (std::size_t j = 0; j < kLanes; ++j) {
        max = lanes[j] > max ? lanes[j] : max;
        any_odd |= odd[j];
    }
    for (; i < row.size(); ++i) {
        max = values[i] > max ? values[i] : max;
        any_odd |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
    }
    return {max, any_odd == 0};
}

ATTUNE_CLONES std::size_t first_equal(std::span<const float> row, float value) {
    const float* values = row.data();
    std::size_t i = 0;
    for (; i + kLanes <= row.size(); i += kLanes) {
        int hits = 0;
        for (std::size_t j = 0; j < kLanes; ++j) hits += values[i + j] == value ? 1 : 0;
        if (hits != 0) break;
    }
    while (i < row.size() && values[i] != value) ++i;
    return i;
}

ATTUNE_CLONES int count_greater(std::span<const float> row, float value) {
    int count = 0;
    for (const float x : row) count += x > value ? 1 : 0;
    return count;
}

ATTUNE_CLONES void run_maxima(std::span<const float> row, std::span<float> maxima) {
    const float* values = row.data();
    const std::size_t whole = row.size() / kRunLength;
    for (std::size_t run = 0; run < whole; ++run) {
        float lanes[kLanes];
        for (std::size_t j = 0; j < kLanes; ++j) {
            const float a = values[run * kRunLength + j];
            const float b = values[run * kRunLength + kLanes + j];
            lanes[j] = a > b ? a : b;
        }
        for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
            for (std::size_t j = 0; j < width; ++j)
                lanes[j] = lanes[j] > lanes[j + width] ? lanes[j] : lanes[j + width];
        }
        maxima[run] = lanes[0];
    }
    if (whole * kRunLength == row.size()) return;
    float max = kLowest;
    for (std::size_t i = whole * kRunLength; i < row.size(); ++i) max = values[i] > max ? values[i] : max;
    maxima[whole] = max;
}

ATTUNE_CLONES double exp_sum(std::span<const float> row, float max) {
    const float* values = row.data();
    double total = 0;
    std::size_t i = 0;
    for (; i + kRunLength <= row.size(); i += kRunLength) {
        float lanes[kLanes];
        for (std::size_t j = 0; j < kLanes; ++j)
            lanes[j] = exp_lane(values[i + j] - max) + exp_lane(values[i + kLanes + j] - max);
        total += static_cast<double>(lane_sum(lanes));
    }
    for (; i < row.size(); ++i) total += static_cast<double>(exp_lane(values[i] - max));
    return total;
}

ATTUNE_CLONES double exp_weights(std::span<const float> row, float max, float scale, float floor,
                                 std::span<float> weights, std::span<double> sums) {
    const float* values = row.data();
    float* out = weights.data();
    double total = 0;
    std::size_t i = 0;
    for (std::size_t run = 0; i < row.size(); ++run) {
        const std::size_t end = std::min(row.size(), i + kRunLength);
        for (std::size_t j = i; j < end; ++j) {
            const float weight = exp_lane((values[j] - max) * scale);
            out[j] = weight < floor ? 0.0F : weight;
        }
        double sum = 0;
        if (end - i == kRunLength) {
            float lanes[kLanes];
            for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = out[i + j] + out[i + kLanes + j];
            sum = static_cast<double>(lane_sum(lanes));
        } else {
            for (std::size_t j = i; j < end; ++j) sum += static_cast<double>(out[j]);
        }
        sums[run] = sum;
        total += sum;
        i = end;
    }
    return total;
}

float exp_nonpositive(float x) { return exp_lane(x); }

}  // namespace attune
