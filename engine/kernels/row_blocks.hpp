// How products over packed weights go through their rows and their memory. Included within the unnamed namespace of a
// file that is compiled once per instruction set, as lanes.hpp is, after panel_share.hpp.

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

/// Some rows on their way through one panel.
struct RowBlock {
    std::int64_t panel;
    std::ptrdiff_t row;    // its first
    int rows;              // 1 to Most
    std::ptrdiff_t index;  // among the blocks that go through the panel one after the other
    std::ptrdiff_t count;
};

/// multiply.operator()<Rows>(block, share) for the block's number of rows.
template <int Rows, class Multiply>
inline void multiply_rows(const RowBlock& block, PanelShare& share, const Multiply& multiply) {
    if (block.rows == Rows) {
        multiply.template operator()<Rows>(block, share);
    } else if constexpr (Rows > 1) {
        multiply_rows<Rows - 1>(block, share, multiply);
    }
}

/// A product of panels [begin, end) with `rows` rows, whose input takes row_bytes each: as many of them as stay
/// resident go through one panel after the other, up to Most at a time.
template <int Most, class Multiply>
inline void multiply_panels(std::ptrdiff_t rows, std::ptrdiff_t row_bytes, const LinesAhead& ahead, std::int64_t begin,
                            std::int64_t end, const Multiply& multiply) {
    const std::ptrdiff_t chunk = resident_rows(row_bytes, Most);
    const LinesAhead none;
    for (std::ptrdiff_t first = 0; first < rows; first += chunk) {
        const std::ptrdiff_t last = first + chunk < rows ? first + chunk : rows;
        for (std::int64_t panel = begin; panel < end; ++panel) {
            // With more rows than stay resident the first ones ask for all.
            PanelShare share(first > 0 ? none : ahead, panel);
            const std::ptrdiff_t count = (last - first + Most - 1) / Most;
            std::ptrdiff_t row = first;
            for (std::ptrdiff_t index = 0; index < count; ++index) {
                const RowBlock block{panel, row, next_block(last - row, Most), index, count};
                multiply_rows<Most>(block, share, multiply);
                row += block.rows;
            }
        }
    }
}
