// Attention over the paged cache, and the writing of it. Included by cpu_kernels_impl.hpp only, within its unnamed
// namespace.

/// Two vectors as they are stored.
inline void prefetch_two(const float* from) {
    __builtin_prefetch(from);
    __builtin_prefetch(from + kLanes);
}
inline void prefetch_two(const Bf16* from) { __builtin_prefetch(from); }

// Vectors of a value summed side by side: each is a chain of its own, and one alone waits for the multiply-adds.
constexpr int kValueChunks = ATTUNE_KERNEL_ROWS >= 12 ? 4 : 1;

/// The second half of a row's attention: its weights lie in `weights`, [Group][blocks][lanes].
struct ValueSum {
    const AttentionCall& call;
    const std::int32_t* table;
    const float* weights;
    const float* inverse;  // [Group]
    std::int64_t row;
    std::ptrdiff_t group_stride;
    std::ptrdiff_t value_block;
    int first_block;
    int blocks;
    int kv_head;
    int first_head;
};

/// Dimensions [d, d + Chunks * kLanes) of the weighted sum of values.
template <int Group, int Chunks, class Element>
inline void add_values(const ValueSum& sum, int d) {
    const AttentionCall& call = sum.call;
    const int position = call.positions[sum.row];
    Floats acc[Group][Chunks];
#pragma GCC unroll 8
    for (int g = 0; g < Group; ++g) {
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) acc[g][c] = Floats{};
    }
    for (int b = sum.first_block; b < sum.blocks; ++b) {
        const Element* values =
            static_cast<const Element*>(call.values) +
            (static_cast<std::ptrdiff_t>(sum.table[b]) * call.kv_heads + sum.kv_head) * sum.value_block + d;
        const float* weights = sum.weights + static_cast<std::ptrdiff_t>(b) * kLanes;
        // Positions beyond the row were never written in this sequence; their block may hold another's leftovers,
        // even infinities, which a zero weight would turn into NaN.
        const int last = position - b * kBlockTokens < kLanes - 1 ? position - b * kBlockTokens : kLanes - 1;
        for (int j = 0; j <= last; ++j) {
            Floats v[Chunks];
#pragma GCC unroll 8
            for (int c = 0; c < Chunks; ++c)
                v[c] = load(values + static_cast<std::ptrdiff_t>(j) * call.value_dim + c * kLanes);
#pragma GCC unroll 8
            for (int g = 0; g < Group; ++g) {
                const Floats weight = splat(weights[g * sum.group_stride + j]);
#pragma GCC unroll 8
                for (int c = 0; c < Chunks; ++c) acc[g][c] += v[c] * weight;
            }
        }
    }
    float* out = call.out + sum.row * call.out_stride + static_cast<std::ptrdiff_t>(sum.first_head) * call.head_dim;
#pragma GCC unroll 8
    for (int g = 0; g < Group; ++g) {
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) {
            const int at = d + c * kLanes;
            float lanes[kLanes];
            store(lanes, acc[g][c] * sum.inverse[g]);
            const int n = call.head_dim - at < kLanes ? call.head_dim - at : kLanes;
            __builtin_memcpy(out + g * call.head_dim + at, lanes, static_cast<std::size_t>(n) * sizeof(float));
        }
    }
}

/// `Group` query heads that share a key/value head, for one row.
template <int Group, class Element>
inline void attend_group(const AttentionCall& call, std::int64_t row, int kv_head, int first_head, float* scratch) {
    const int position = call.positions[row];
    const int from = call.window > 0 && position - call.window + 1 > 0 ? position - call.window + 1 : 0;
    const int first_block = from / kBlockTokens;
    const int blocks = position / kBlockTokens + 1;
    const std::int32_t* table = call.blocks + call.first_block[row];
    const float* q = call.q + row * call.q_stride + static_cast<std::ptrdiff_t>(first_head) * call.head_dim;
    const std::ptrdiff_t key_block = static_cast<std::ptrdiff_t>(call.head_dim) * kBlockTokens;
    const std::ptrdiff_t value_block = static_cast<std::ptrdiff_t>(call.value_dim) * kBlockTokens;
    const Ints lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    // Finite, so that a masked lane never makes NaN; far below any score.
    const Floats hidden = splat(-1e30F);

    // scratch: [Group][blocks][lanes]
    const std::ptrdiff_t group_stride = static_cast<std::ptrdiff_t>(blocks) * kLanes;
    Floats highest[Group];
#pragma GCC unroll 8
    for (int g = 0; g < Group; ++g) highest[g] = hidden;
    for (int b = first_block; b < blocks; ++b) {
        const Element* keys = static_cast<const Element*>(call.keys) +
                              (static_cast<std::ptrdiff_t>(table[b]) * call.kv_heads + kv_head) * key_block;
        // Blocks lie anywhere: keys are asked for two blocks ahead, values while there is still time.
        const Element* next_keys =
            static_cast<const Element*>(call.keys) +
            (static_cast<std::ptrdiff_t>(table[b + 2 < blocks ? b + 2 : b]) * call.kv_heads + kv_head) * key_block;
        const Element* values = static_cast<const Element*>(call.values) +
                                (static_cast<std::ptrdiff_t>(table[b]) * call.kv_heads + kv_head) * value_block;
        // Two chains per head (even and odd dimensions) hide the latency of the multiply-add.
        Floats even[Group];
        Floats odd[Group];
#pragma GCC unroll 8
        for (int g = 0; g < Group; ++g) even[g] = odd[g] = Floats{};
        for (int d = 0; d < call.head_dim; d += 2) {
            prefetch_two(next_keys + static_cast<std::ptrdiff_t>(d) * kLanes);
            prefetch_two(values + static_cast<std::ptrdiff_t>(d) * kLanes);
            const Floats k0 = load(keys + static_cast<std::ptrdiff_t>(d) * kLanes);
            const Floats k1 = load(keys + static_cast<std::ptrdiff_t>(d + 1) * kLanes);
#pragma GCC unroll 8
            for (int g = 0; g < Group; ++g) {
                even[g] += k0 * q[g * call.head_dim + d];
                odd[g] += k1 * q[g * call.head_dim + d + 1];
            }
        }
        const Ints at = lane + b * kBlockTokens;
        const Ints visible = (at <= position) & (at >= from);
#pragma GCC unroll 8
        for (int g = 0; g < Group; ++g) {
            const Floats score = visible ? (even[g] + odd[g]) * call.scale : hidden;
            store(scratch + g * group_stride + static_cast<std::ptrdiff_t>(b) * kLanes, score);
            highest[g] = highest[g] > score ? highest[g] : score;
        }
    }

    float inverse[Group];
#pragma GCC unroll 8
    for (int g = 0; g < Group; ++g) {
        const float top = max_lanes(highest[g]);
        Floats sum{};
        for (int b = first_block; b < blocks; ++b) {
            float* at = scratch + g * group_stride + static_cast<std::ptrdiff_t>(b) * kLanes;
            const Floats score = load(at);
            const Floats weight = score > hidden ? exp_lanes(score - top) : Floats{};
            store(at, weight);
            sum += weight;
        }
        inverse[g] = 1.0F / sum_lanes(sum);
    }

    const ValueSum sum{call,        table,       scratch, inverse, row,       group_stride,
                       value_block, first_block, blocks,  kv_head, first_head};
    int d = 0;
    for (; d + kValueChunks * kLanes <= call.head_dim; d += kValueChunks * kLanes)
        add_values<Group, kValueChunks, Element>(sum, d);
    for (; d < call.head_dim; d += kLanes) add_values<Group, 1, Element>(sum, d);
}

template <class Element>
void attend(const AttentionCall& call, std::int64_t begin, std::int64_t end, float* scratch) {
    const int group = call.heads / call.kv_heads;
    for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t row = item / call.kv_heads;
        const int kv_head = static_cast<int>(item % call.kv_heads);
        int done = 0;
        while (done < group) {
            const int head = kv_head * group + done;
            const int left = group - done;
            if (left >= 4) {
                attend_group<4, Element>(call, row, kv_head, head, scratch);
                done += 4;
            } else if (left == 3) {
                attend_group<3, Element>(call, row, kv_head, head, scratch);
                done += 3;
            } else if (left == 2) {
                attend_group<2, Element>(call, row, kv_head, head, scratch);
                done += 2;
            } else {
                attend_group<1, Element>(call, row, kv_head, head, scratch);
                done += 1;
            }
        }
    }
}

inline void put(float* to, float value) { *to = value; }

inline void put(Bf16* to, float value) {
    std::uint32_t word;
    __builtin_memcpy(&word, &value, sizeof word);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
        to->bits = static_cast<std::uint16_t>((word >> 16) | 0x40U);
        return;
    }
    to->bits = static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
}

template <class Element>
void kv_write(const KvWriteCall& call, std::int64_t begin, std::int64_t end) {
    const std::ptrdiff_t key_block = static_cast<std::ptrdiff_t>(call.head_dim) * kBlockTokens;
    const std::ptrdiff_t value_block = static_cast<std::ptrdiff_t>(call.value_dim) * kBlockTokens;
    for (std::int64_t row = begin; row < end; ++row) {
        const int position = call.positions[row];
        const std::int32_t block = call.blocks[call.first_block[row] + position / kBlockTokens];
        const int offset = position % kBlockTokens;
        for (int head = 0; head < call.kv_heads; ++head) {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(block) * call.kv_heads + head;
            Element* keys = static_cast<Element*>(call.keys) + at * key_block + offset;
            Element* values = static_cast<Element*>(call.values) + at * value_block +
                              static_cast<std::ptrdiff_t>(offset) * call.value_dim;
            const float* k = call.k + row * call.k_stride + static_cast<std::ptrdiff_t>(head) * call.head_dim;
            const float* v = call.v + row * call.v_stride + static_cast<std::ptrdiff_t>(head) * call.head_dim;
            for (int d = 0; d < call.head_dim; ++d) put(keys + static_cast<std::ptrdiff_t>(d) * kBlockTokens, k[d]);
            for (int d = 0; d < call.head_dim; ++d) put(values + d, v[d]);
        }
    }
}
