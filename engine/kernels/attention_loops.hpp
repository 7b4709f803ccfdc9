// Attention over the paged cache. Included within the unnamed namespace of a file that is compiled for one instruction
// set, after exp_lanes.hpp and one of attention_f32.hpp and attention_bf16.hpp, which say how queries and weights are
// held and multiplied.

// Scores and sums of values are made for a tile at a time: some rows of one prompt (or one row) times query heads of
// one group, which all read the same keys and values, against several vectors of those side by side. Each score is one
// chain over the dimensions and each value one over the positions, whatever the tile, so a row's bits do not depend on
// it.
constexpr bool kManyRegisters = ATTUNE_KERNEL_ROWS >= 12;  // 32 vectors of 16 floats; the other sets have 8 or 4
constexpr int kMostGroup = 4;
constexpr int kTileQueries = kManyRegisters ? kMostTileQueries : kMostGroup;

/// Vectors side by side, so that the sums fill the registers: chains that are too few wait for their multiply-adds, and
/// what is loaded for too few of them costs more than they do.
constexpr int side_by_side(int queries) {
    if (kManyRegisters) return queries <= 4 ? 4 : 2;
    return queries == 1 ? 4 : queries <= 3 ? 2 : 1;
}

struct Tile {
    const AttentionCall& call;
    std::int64_t row;  // its first
    int kv_head;
    int first_head;
    const std::int32_t* table;
    int first_block;  // that its first row sees
    int blocks;       // up to the one that its last row ends in
    float* scores;    // [queries][blocks][lanes], queries: rows times heads
    float* q;         // [head_dim][queries], as put_query() writes it

    int position(int tile_row) const { return call.positions[row] + tile_row; }
    /// The first position that a row sees.
    int from(int tile_row) const {
        const int first = position(tile_row) - call.window + 1;
        return call.window > 0 && first > 0 ? first : 0;
    }
    template <class Element>
    const Element* keys(int block) const {
        return static_cast<const Element*>(call.keys) +
               (static_cast<std::ptrdiff_t>(table[block]) * call.kv_heads + kv_head) * call.head_dim * kBlockTokens;
    }
    template <class Element>
    const Element* values(int block) const {
        return static_cast<const Element*>(call.values) +
               (static_cast<std::ptrdiff_t>(table[block]) * call.kv_heads + kv_head) * call.value_dim * kBlockTokens;
    }
    float* scores_of(int query, int block) const {
        return scores + (static_cast<std::ptrdiff_t>(query) * blocks + block) * kLanes;
    }
};

// Finite, so that a masked lane never makes NaN; far below any score.
constexpr float kHidden = -1e30F;

/// Two vectors as they are stored.
inline void prefetch_two(const float* from) {
    __builtin_prefetch(from);
    __builtin_prefetch(from + kLanes);
}
inline void prefetch_two(const Bf16* from) { __builtin_prefetch(from); }

/// Scores of the tile's queries in key blocks [block, block + Blocks), and the highest per lane so far.
template <int Rows, int Group, int Blocks, class Element>
inline void score_blocks(const Tile& tile, int block, Floats (&highest)[Rows * Group]) {
    constexpr int kQueries = Rows * Group;
    const Element* keys[Blocks];
    const Element* next_keys[Blocks];
    const Element* values[Blocks];
#pragma GCC unroll 8
    for (int c = 0; c < Blocks; ++c) {
        keys[c] = tile.keys<Element>(block + c);
        // Blocks lie anywhere: the next keys are asked for now, values while there is still time.
        next_keys[c] = tile.keys<Element>(block + c + Blocks < tile.blocks ? block + c + Blocks : block + c);
        values[c] = tile.values<Element>(block + c);
    }
    Floats acc[kQueries][Blocks];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
        for (int c = 0; c < Blocks; ++c) acc[i][c] = Floats{};
    }
    const int head_dim = tile.call.head_dim;
    const float* q = tile.q;
    for (int d = 0; d < head_dim; d += 2) {
        // A prompt's later rows find them in the cache.
        if constexpr (Rows == 1) {
#pragma GCC unroll 8
            for (int c = 0; c < Blocks; ++c) {
                prefetch_two(next_keys[c] + static_cast<std::ptrdiff_t>(d) * kLanes);
                prefetch_two(values[c] + static_cast<std::ptrdiff_t>(d) * kLanes);
            }
        }
        add_two_dimensions(keys, d, q, acc);
        q += kQueryPair * kQueries;
    }
    const Ints lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < Blocks; ++c) {
            const Ints at = lane + (block + c) * kBlockTokens;
            const Ints visible = (at <= tile.position(r)) & (at >= tile.from(r));
#pragma GCC unroll 8
            for (int i = r * Group; i < (r + 1) * Group; ++i) {
                const Floats score = visible ? acc[i][c] * tile.call.scale : splat(kHidden);
                store(tile.scores_of(i, block + c), score);
                highest[i] = highest[i] > score ? highest[i] : score;
            }
        }
    }
}

/// From `block` on, so many at a time as there are.
template <int Rows, int Group, int Blocks, class Element>
inline void score(const Tile& tile, int block, Floats (&highest)[Rows * Group]) {
    for (; block + Blocks <= tile.blocks; block += Blocks)
        score_blocks<Rows, Group, Blocks, Element>(tile, block, highest);
    if constexpr (Blocks > 1) score<Rows, Group, Blocks / 2, Element>(tile, block, highest);
}

/// Scores become weights that are yet to be divided by their sum. Returns 1 / that.
inline float soften(const Tile& tile, int query, Floats highest) {
    const float top = max_lanes(highest);
    const Floats hidden = splat(kHidden);
    Floats sum{};
    for (int b = tile.first_block; b < tile.blocks; ++b) {
        float* at = tile.scores_of(query, b);
        const Floats score = load(at);
        const Floats weight = score > hidden ? exp_lanes(score - top) : Floats{};
        put_weights(at, weight);
        sum += weight;
    }
    return 1.0F / sum_lanes(sum);
}

/// Dimensions [d, d + Chunks * kLanes) of the weighted sums of values.
template <int Rows, int Group, int Chunks, class Element>
inline void sum_chunks(const Tile& tile, const float* inverse, int d) {
    constexpr int kQueries = Rows * Group;
    const AttentionCall& call = tile.call;
    const std::ptrdiff_t query_stride = static_cast<std::ptrdiff_t>(tile.blocks) * kLanes;
    Floats acc[kQueries][Chunks];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) acc[i][c] = Floats{};
    }
    for (int b = tile.first_block; b < tile.blocks; ++b) {
        const Element* values = tile.values<Element>(b) + d;
        const float* weights = tile.scores_of(0, b);
        // Positions beyond a row were never written in its sequence, or by rows after it; their block may hold
        // another's leftovers, even infinities, which a zero weight would turn into NaN.
        const int last = tile.position(0) - b * kBlockTokens;
        add_block<Rows, Group, Chunks>(values, call.value_dim, weights, query_stride, last, acc);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
        float* out = call.out + (tile.row + i / Group) * call.out_stride +
                     static_cast<std::ptrdiff_t>(tile.first_head + i % Group) * call.head_dim;
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) {
            const int at = d + c * kLanes;
            float lanes[kLanes];
            store(lanes, acc[i][c] * inverse[i]);
            const int n = call.head_dim - at < kLanes ? call.head_dim - at : kLanes;
            __builtin_memcpy(out + at, lanes, static_cast<std::size_t>(n) * sizeof(float));
        }
    }
}

/// Dimensions from `d` on, so many vectors at a time as there are.
template <int Rows, int Group, int Chunks, class Element>
inline void sum_values(const Tile& tile, const float* inverse, int d) {
    for (; d + Chunks * kLanes <= tile.call.value_dim; d += Chunks * kLanes)
        sum_chunks<Rows, Group, Chunks, Element>(tile, inverse, d);
    if constexpr (Chunks > 1) sum_values<Rows, Group, Chunks / 2, Element>(tile, inverse, d);
}

template <int Rows, int Group, class Element>
void attend_tile(const AttentionCall& call, std::int64_t row, int kv_head, int first_head, float* scratch) {
    constexpr int kQueries = Rows * Group;
    Tile tile{call, row, kv_head, first_head, call.blocks + call.first_block[row], 0, 0, nullptr, scratch};
    tile.first_block = tile.from(0) / kBlockTokens;
    tile.blocks = tile.position(Rows - 1) / kBlockTokens + 1;
    tile.scores = scratch + static_cast<std::ptrdiff_t>(kQueries) * call.head_dim;
    for (int i = 0; i < kQueries; ++i) {
        const float* q = call.q + (row + i / Group) * call.q_stride +
                         static_cast<std::ptrdiff_t>(first_head + i % Group) * call.head_dim;
        for (int d = 0; d < call.head_dim; ++d) put_query(tile.q, kQueries, i, d, q[d]);
    }
    Floats highest[kQueries];
    for (Floats& one : highest) one = splat(kHidden);
    score<Rows, Group, side_by_side(kQueries), Element>(tile, tile.first_block, highest);
    float inverse[kQueries];
    for (int i = 0; i < kQueries; ++i) inverse[i] = soften(tile, i, highest[i]);
    sum_values<Rows, Group, side_by_side(kQueries), Element>(tile, inverse, 0);
}

/// Query heads [head, end) of one key/value head, up to Group at a time.
template <int Rows, int Group, class Element>
inline void attend_heads(const AttentionCall& call, std::int64_t row, int kv_head, int head, int end, float* scratch) {
    for (; head + Group <= end; head += Group) attend_tile<Rows, Group, Element>(call, row, kv_head, head, scratch);
    if constexpr (Group > 1) attend_heads<Rows, Group - 1, Element>(call, row, kv_head, head, end, scratch);
}

template <int Rows, class Element>
inline void attend_rows(const AttentionCall& call, std::int64_t row, int kv_head, float* scratch) {
    constexpr int kGroup = kTileQueries / Rows < kMostGroup ? kTileQueries / Rows : kMostGroup;
    const int group = call.heads / call.kv_heads;
    attend_heads<Rows, kGroup, Element>(call, row, kv_head, kv_head * group, (kv_head + 1) * group, scratch);
}

/// How many rows from `row` on, at most `most`, are a prompt's one after the other, as a power of two.
inline int rows_together(const AttentionCall& call, std::int64_t row, std::int64_t most) {
    const int group = call.heads / call.kv_heads;
    const int fit = kTileQueries / (group < kMostGroup ? group : kMostGroup);
    int rows = 1;
    while (2 * rows <= fit && 2 * rows <= most) {
        for (int r = rows; r < 2 * rows; ++r)
            if (call.first_block[row + r] != call.first_block[row] ||
                call.positions[row + r] != call.positions[row] + r)
                return rows;
        rows *= 2;
    }
    return rows;
}

template <class Element>
void attend(const AttentionCall& call, std::int64_t begin, std::int64_t end, float* scratch) {
    for (std::int64_t item = begin; item < end;) {
        const std::int64_t row = item / call.kv_heads;
        const int head = static_cast<int>(item % call.kv_heads);
        const int rows = head == 0 ? rows_together(call, row, (end - item) / call.kv_heads) : 1;
        if (rows == 1) {
            attend_rows<1, Element>(call, row, head, scratch);
            ++item;
            continue;
        }
        for (int kv_head = 0; kv_head < call.kv_heads; ++kv_head) {
            if (rows == 2) attend_rows<2, Element>(call, row, kv_head, scratch);
            if (rows == 4) attend_rows<4, Element>(call, row, kv_head, scratch);
            if constexpr (kTileQueries >= 8)
                if (rows == 8) attend_rows<8, Element>(call, row, kv_head, scratch);
        }
        item += std::int64_t{rows} * call.kv_heads;
    }
}
