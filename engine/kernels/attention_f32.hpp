// The products of attention_loops.hpp in float32: queries and weights as they are, keys and values widened. Included
// before it.

/// Floats that two dimensions of a query take.
constexpr int kQueryPair = 2;

inline void put_query(float* to, int queries, int query, int d, float value) { to[d * queries + query] = value; }

template <int Queries, int Blocks, class Element>
inline void add_two_dimensions(const Element* const (&keys)[Blocks], int d, const float* q,
                               Floats (&acc)[Queries][Blocks]) {
#pragma GCC unroll 2
    for (int e = d; e < d + 2; ++e, q += Queries) {
        Floats k[Blocks];
#pragma GCC unroll 8
        for (int c = 0; c < Blocks; ++c) k[c] = load(keys[c] + static_cast<std::ptrdiff_t>(e) * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < Queries; ++i) {
            const Floats query = splat(q[i]);
#pragma GCC unroll 8
            for (int c = 0; c < Blocks; ++c) acc[i][c] += k[c] * query;
        }
    }
}

/// The weights of one block's positions.
inline void put_weights(float* to, Floats weights) { store(to, weights); }

/// Adds one position's value to the sums of rows [FirstRow, Rows).
template <int FirstRow, int Rows, int Group, int Chunks, class Element>
inline void add_value(const Element* value, const float* weight, std::ptrdiff_t query_stride,
                      Floats (&acc)[Rows * Group][Chunks]) {
    Floats v[Chunks];
#pragma GCC unroll 8
    for (int c = 0; c < Chunks; ++c) v[c] = load(value + c * kLanes);
#pragma GCC unroll 8
    for (int i = FirstRow * Group; i < Rows * Group; ++i) {
        const Floats w = splat(weight[i * query_stride]);
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) acc[i][c] += v[c] * w;
    }
}

/// The positions of one block that only rows from FirstRow on see: (the previous row's last, the row's last].
template <int FirstRow, int Rows, int Group, int Chunks, class Element>
inline void add_later_values(const Element* values, int value_dim, const float* weights, std::ptrdiff_t query_stride,
                             int last, Floats (&acc)[Rows * Group][Chunks]) {
    if constexpr (FirstRow < Rows) {
        const int own = last + FirstRow;  // the position, within the block, of row FirstRow
        if (own >= 0 && own < kBlockTokens)
            add_value<FirstRow, Rows, Group, Chunks>(values + static_cast<std::ptrdiff_t>(own) * value_dim,
                                                     weights + own, query_stride, acc);
        add_later_values<FirstRow + 1, Rows, Group, Chunks>(values, value_dim, weights, query_stride, last, acc);
    }
}

/// One block's positions that each row sees. `last`: what row 0 sees of it.
template <int Rows, int Group, int Chunks, class Element>
inline void add_block(const Element* values, int value_dim, const float* weights, std::ptrdiff_t query_stride, int last,
                      Floats (&acc)[Rows * Group][Chunks]) {
    const int shared = last < kLanes - 1 ? last : kLanes - 1;
    for (int j = 0; j <= shared; ++j)
        add_value<0, Rows, Group, Chunks>(values + static_cast<std::ptrdiff_t>(j) * value_dim, weights + j,
                                          query_stride, acc);
    if constexpr (Rows > 1)
        add_later_values<1, Rows, Group, Chunks>(values, value_dim, weights, query_stride, last, acc);
}
