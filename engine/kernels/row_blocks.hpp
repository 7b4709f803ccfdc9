// How products over packed weights go through their rows and their memory. Included within the unnamed namespace of a
// file that is compiled once per instruction set, as lanes.hpp is.

// Weights pass by once per step, so their reading has to be asked for early: the processor's own guess stops at pages.
// Without it a block of 8 rows reaches half of the multiply-add limit, with it all of it. Beyond a panel lies the next.
constexpr std::ptrdiff_t kPrefetchBytes = 16 << 10;

// Bytes of the input that stay in the second-level cache while all panels pass by.
constexpr std::ptrdiff_t kResidentBytes = 384 << 10;

/// Rows that go through the panels together: whole blocks of `most` rows, at least one.
inline std::ptrdiff_t resident_rows(std::ptrdiff_t row_bytes, int most) {
    const std::ptrdiff_t rows = kResidentBytes / row_bytes;
    return rows < most ? most : rows - rows % most;
}

/// Rows of the next block, blocks as equal as possible: 32 rows are 11 + 11 + 10 for 12 at most, not 12 + 12 + 8.
inline int next_block(std::ptrdiff_t left, int most) {
    const std::ptrdiff_t blocks = (left + most - 1) / most;
    return static_cast<int>((left + blocks - 1) / blocks);
}
