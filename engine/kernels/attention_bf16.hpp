// The products of attention_loops.hpp with AVX512-BF16: queries and weights are rounded to bfloat16, and two
// dimensions, or two positions, are multiplied by one instruction. Included before it.

/// Floats that two dimensions of a query take.
constexpr int kQueryPair = 1;

/// Lane i of both halves of 32 elements in word i.
inline __m512bh pair_lanes(__m512i halves) {
    alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (__m512bh)_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), halves);
}
inline __m512bh splat_pair(const void* pair) {
    std::int32_t word;
    __builtin_memcpy(&word, pair, sizeof word);
    return (__m512bh)_mm512_set1_epi32(word);
}
inline Floats add_pairs(Floats sum, __m512bh a, __m512bh b) { return (Floats)_mm512_dpbf16_ps((__m512)sum, a, b); }

inline void put_query(float* to, int queries, int query, int d, float value) {
    const auto rounded = (__m128i)_mm_cvtneps_pbh(_mm_set_ss(value));
    reinterpret_cast<std::uint16_t*>(to)[2 * (d / 2 * queries + query) + d % 2] =
        static_cast<std::uint16_t>(_mm_extract_epi16(rounded, 0));
}

/// Dimensions d and d + 1 of some key blocks, [d][lanes], by those of each query.
template <int Queries, int Blocks>
inline void add_two_dimensions(const Bf16* const (&keys)[Blocks], int d, const float* q,
                               Floats (&acc)[Queries][Blocks]) {
    __m512bh k[Blocks];
#pragma GCC unroll 8
    for (int c = 0; c < Blocks; ++c)
        k[c] = pair_lanes(_mm512_loadu_si512(keys[c] + static_cast<std::ptrdiff_t>(d) * kLanes));
#pragma GCC unroll 8
    for (int i = 0; i < Queries; ++i) {
        const __m512bh query = splat_pair(q + i);
#pragma GCC unroll 8
        for (int c = 0; c < Blocks; ++c) acc[i][c] = add_pairs(acc[i][c], k[c], query);
    }
}

/// The weights of one block's positions, in its first half.
inline void put_weights(float* to, Floats weights) {
    const __m256bh rounded = _mm512_cvtneps_pbh((__m512)weights);
    __builtin_memcpy(to, &rounded, sizeof rounded);
}

inline __m256i value_lanes(const Bf16* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// Adds two positions' values to the sums of rows [FirstRow, EndRow); without `second` the other counts as zero,
/// whatever it holds.
template <int FirstRow, int EndRow, int Rows, int Group, int Chunks>
inline void add_two_values(const Bf16* first, const Bf16* second, const Bf16* weight, std::ptrdiff_t query_stride,
                           Floats (&acc)[Rows * Group][Chunks]) {
    __m512bh v[Chunks];
#pragma GCC unroll 8
    for (int c = 0; c < Chunks; ++c) {
        const __m256i other = second != nullptr ? value_lanes(second + c * kLanes) : _mm256_setzero_si256();
        v[c] = pair_lanes(_mm512_inserti64x4(_mm512_castsi256_si512(value_lanes(first + c * kLanes)), other, 1));
    }
#pragma GCC unroll 8
    for (int i = FirstRow * Group; i < EndRow * Group; ++i) {
        const __m512bh w = splat_pair(weight + i * query_stride);
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) acc[i][c] = add_pairs(acc[i][c], v[c], w);
    }
}

/// Positions j and j + 1 of a block for the rows from Row on that see the first of them at least. `last`: what row 0
/// sees of the block.
template <int Row, int Rows, int Group, int Chunks>
inline void add_last_values(const Bf16* values, int value_dim, const Bf16* weights, std::ptrdiff_t query_stride, int j,
                            int last, Floats (&acc)[Rows * Group][Chunks]) {
    if constexpr (Row < Rows) {
        const Bf16* first = values + static_cast<std::ptrdiff_t>(j) * value_dim;
        if (last + Row >= j)
            add_two_values<Row, Row + 1, Rows, Group, Chunks>(first, last + Row > j ? first + value_dim : nullptr,
                                                              weights + j, query_stride, acc);
        add_last_values<Row + 1, Rows, Group, Chunks>(values, value_dim, weights, query_stride, j, last, acc);
    }
}

/// One block's positions that each row sees, two at a time from the block's beginning.
template <int Rows, int Group, int Chunks>
inline void add_block(const Bf16* values, int value_dim, const float* scores, std::ptrdiff_t query_stride, int last,
                      Floats (&acc)[Rows * Group][Chunks]) {
    const Bf16* weights = reinterpret_cast<const Bf16*>(scores);
    const std::ptrdiff_t stride = 2 * query_stride;
    int j = 0;
    for (; j < kLanes && j + 1 <= last; j += 2) {
        const Bf16* first = values + static_cast<std::ptrdiff_t>(j) * value_dim;
        add_two_values<0, Rows, Rows, Group, Chunks>(first, first + value_dim, weights + j, stride, acc);
    }
    for (; j < kLanes && j <= last + Rows - 1; j += 2)
        add_last_values<0, Rows, Group, Chunks>(values, value_dim, weights, stride, j, last, acc);
}
