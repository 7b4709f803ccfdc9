// The sums of a table's rows, compiled once per instruction set: each row_sums_<set>.cpp defines ATTUNE_KERNEL_SET (a
// namespace), then includes this file with its own -march. Everything lives in an unnamed namespace and nothing from
// the standard library is instantiated, so that no AVX-512 copy of a shared inline function can be picked by the
// linker.

#include "engine/kernels/cache_line.hpp"

#include <cstddef>
#include <cstdint>

namespace attune::ATTUNE_KERNEL_SET {

namespace {

// Few registers hold the sums of few columns at a time; wider rows are read in several passes.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kMostVectors = 8;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kMostVectors = 4;
#else
constexpr int kVectorBytes = 16;
constexpr int kMostVectors = 4;
#endif
constexpr std::size_t kAhead = 16;  ///< rows asked for before they are read: hashed rows lie anywhere

/// Two neighbours to a word: the even column is its lower half, the odd one its upper. So both become float32 without
/// a shuffle, and their sums are put side by side once at the end.
template <int kBytes, int kVectors>
void sum_columns(const std::uint16_t* table, std::size_t stride, const std::uint32_t* rows, std::size_t count,
                 float* sums) {
    typedef float Floats __attribute__((vector_size(kBytes)));
    typedef std::uint32_t Words __attribute__((vector_size(kBytes)));
    constexpr std::size_t kColumns = kBytes / sizeof(std::uint16_t);
    Floats even[kVectors] = {}, odd[kVectors] = {};
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) {
            const char* next = reinterpret_cast<const char*>(table + rows[i + kAhead] * stride);
            for (std::size_t at = 0; at < kBytes * kVectors; at += kCacheLine) __builtin_prefetch(next + at);
        }
        const std::uint16_t* row = table + rows[i] * stride;
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
            Words words;
            __builtin_memcpy(&words, row + static_cast<std::size_t>(v) * kColumns, sizeof words);
            even[v] += (Floats)(words << 16);
            odd[v] += (Floats)(words & 0xFFFF0000u);
        }
    }
    for (int v = 0; v < kVectors; ++v)
        for (std::size_t i = 0; i < kColumns / 2; ++i) {
            sums[static_cast<std::size_t>(v) * kColumns + 2 * i] = even[v][i];
            sums[static_cast<std::size_t>(v) * kColumns + 2 * i + 1] = odd[v][i];
        }
}

}  // namespace

void row_sums(const std::uint16_t* table, std::size_t stride, const std::uint32_t* rows, std::size_t count,
              float* sums) {
    constexpr std::size_t kColumns = kVectorBytes / sizeof(std::uint16_t);
    for (std::size_t done = 0; done < stride;) {
        const std::size_t left = stride - done;
        const auto pass = [&](auto* sum, std::size_t columns) {
            sum(table + done, stride, rows, count, sums + done);
            done += columns;
        };
        if constexpr (kMostVectors >= 8)
            if (left >= 8 * kColumns) {
                pass(sum_columns<kVectorBytes, 8>, 8 * kColumns);
                continue;
            }
        if (left >= 4 * kColumns)
            pass(sum_columns<kVectorBytes, 4>, 4 * kColumns);
        else if (left >= 2 * kColumns)
            pass(sum_columns<kVectorBytes, 2>, 2 * kColumns);
        else if (left >= kColumns)
            pass(sum_columns<kVectorBytes, 1>, kColumns);
        else if (left >= 16)
            pass(sum_columns<32, 1>, 16);
        else
            pass(sum_columns<16, 1>, 8);
    }
}

}  // namespace attune::ATTUNE_KERNEL_SET
