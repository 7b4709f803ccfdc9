// The hot loops, compiled once per instruction set: each cpu_kernels_<set>.cpp defines ATTUNE_KERNEL_SET (a namespace),
// ATTUNE_KERNEL_ROWS (rows per register block) and ATTUNE_KERNEL_NAME, then includes this file with its own -march.
// Everything lives in an unnamed namespace and nothing from the standard library is instantiated, so that no AVX-512
// copy of a shared inline function can be picked by the linker.

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kv/block_size.hpp"

namespace attune::ATTUNE_KERNEL_SET {

namespace {

constexpr int kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Ints __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(32)));

static_assert(kBlockTokens == kLanes, "one vector holds the scores of one block");
static_assert(kPanelOutputs == 2 * kLanes);

inline Floats load(const float* from) {
    Floats value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

inline Floats load(const Bf16* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    return (Floats)words;
}

inline void store(float* to, Floats value) { __builtin_memcpy(to, &value, sizeof value); }

/// Written out, for the broadcast alone: `Floats{} + value` would add zero first, as -0 asks for.
inline Floats splat(float v) { return Floats{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }

inline float sum_lanes(Floats v) {
    // A fixed tree, so that every set gives the same bits.
    float lanes[kLanes];
    store(lanes, v);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

inline float max_lanes(Floats v) {
    float lanes[kLanes];
    store(lanes, v);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    }
    return lanes[0];
}

/// exp within 2 ulp on [-87, 88]; inputs are clamped to it. Cephes' reduction and polynomial.
inline Floats exp_lanes(Floats x) {
    x = x < splat(-87.0F) ? splat(-87.0F) : x;
    x = x > splat(88.0F) ? splat(88.0F) : x;
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const Floats magic = splat(12582912.0F);
    const Floats n = (x * 1.44269504F + magic) - magic;
    Floats r = x - n * 0.693359375F;
    r = r - n * -2.12194440e-4F;
    Floats p = splat(1.9875691500e-4F);
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    return p * (Floats)exponent;
}

// ---- matrix products

inline void load_panel(const float* from, Floats& low, Floats& high) {
    low = load(from);
    high = load(from + kLanes);
}

/// Outputs i and i + 16 share a word: one load, a shift and a mask widen both.
inline void load_panel(const Bf16* from, Floats& low, Floats& high) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    low = (Floats)(words << 16);
    high = (Floats)(words & 0xffff0000U);
}

// Weights pass by once per step, so their reading has to be asked for early: without it a block of 8 rows reaches half
// of the multiply-add limit, with it all of it. Beyond a panel lies the next one.
constexpr std::ptrdiff_t kPrefetchBytes = 16 << 10;
constexpr std::ptrdiff_t kCacheLine = 64;

template <int Rows, class Element>
inline void gemm_block(const float* x, std::ptrdiff_t x_stride, const Element* panel, int columns, float* y,
                       std::ptrdiff_t y_stride) {
    Floats low[Rows];
    Floats high[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) low[r] = high[r] = Floats{};
    for (int k = 0; k < columns; ++k) {
        Floats w0;
        Floats w1;
        const Element* column = panel + static_cast<std::ptrdiff_t>(k) * kPanelOutputs;
        load_panel(column, w0, w1);
        const char* ahead = reinterpret_cast<const char*>(column) + kPrefetchBytes;
        for (std::size_t line = 0; line < kPanelOutputs * sizeof(Element); line += kCacheLine)
            __builtin_prefetch(ahead + line);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const Floats value = splat(x[r * x_stride + k]);
            low[r] += w0 * value;
            high[r] += w1 * value;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
        store(y + r * y_stride, low[r]);
        store(y + r * y_stride + kLanes, high[r]);
    }
}

template <class Element>
using GemmBlock = void (*)(const float*, std::ptrdiff_t, const Element*, int, float*, std::ptrdiff_t);

template <int Rows, class Element>
struct GemmTable {
    static GemmBlock<Element> pick(int rows) {
        if (rows == Rows) return &gemm_block<Rows, Element>;
        return GemmTable<Rows - 1, Element>::pick(rows);
    }
};
template <class Element>
struct GemmTable<0, Element> {
    static GemmBlock<Element> pick(int) { return nullptr; }
};

// Bytes of x that stay in the second-level cache while all panels pass by.
constexpr std::ptrdiff_t kResidentBytes = 384 << 10;

template <class Element>
void gemm(const GemmCall& call, std::int64_t begin, std::int64_t end) {
    constexpr int kRows = ATTUNE_KERNEL_ROWS;
    std::ptrdiff_t chunk = kResidentBytes / (static_cast<std::ptrdiff_t>(sizeof(float)) * call.columns);
    chunk = chunk < kRows ? kRows : chunk - chunk % kRows;
    const std::ptrdiff_t panel_size = static_cast<std::ptrdiff_t>(call.columns) * kPanelOutputs;
    for (std::ptrdiff_t first = 0; first < call.rows; first += chunk) {
        const std::ptrdiff_t last = first + chunk < call.rows ? first + chunk : call.rows;
        for (std::int64_t p = begin; p < end; ++p) {
            const Element* panel = static_cast<const Element*>(call.panels) + p * panel_size;
            std::ptrdiff_t row = first;
            while (row < last) {
                // Blocks as equal as possible: 32 rows are 11 + 11 + 10, not 12 + 12 + 8.
                const std::ptrdiff_t left = last - row;
                const std::ptrdiff_t blocks = (left + kRows - 1) / kRows;
                const int rows = static_cast<int>((left + blocks - 1) / blocks);
                GemmTable<kRows, Element>::pick(rows)(call.x + row * call.x_stride, call.x_stride, panel, call.columns,
                                                      call.y + row * call.y_stride + p * kPanelOutputs, call.y_stride);
                row += rows;
            }
        }
    }
}

// ---- packing

#if defined(__AVX512F__)
/// 16 x 16 words turned in place: blocks of 8, 4, 2 and 1 change places across the diagonal.
template <int Distance>
inline void swap_blocks(Words (&w)[kLanes]) {
    Ints from_low;
    Ints from_high;
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool first = (lane & Distance) == 0;
        from_low[lane] = first ? lane : kLanes + lane - Distance;
        from_high[lane] = first ? lane + Distance : kLanes + lane;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if ((i & Distance) != 0) continue;
        const Words low = w[i];
        const Words high = w[i + Distance];
        w[i] = __builtin_shuffle(low, high, from_low);
        w[i + Distance] = __builtin_shuffle(low, high, from_high);
    }
}

inline void turn(Words (&w)[kLanes]) {
    swap_blocks<8>(w);
    swap_blocks<4>(w);
    swap_blocks<2>(w);
    swap_blocks<1>(w);
}
#else
inline void turn(Words (&w)[kLanes]) {
    std::uint32_t words[kLanes][kLanes];
    __builtin_memcpy(words, w, sizeof words);
    for (int i = 0; i < kLanes; ++i) {
        for (int j = 0; j < i; ++j) {
            const std::uint32_t kept = words[i][j];
            words[i][j] = words[j][i];
            words[j][i] = kept;
        }
    }
    __builtin_memcpy(w, words, sizeof words);
}
#endif

inline Words load_words(const std::uint16_t* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return __builtin_convertvector(halves, Words);
}

void pack_bf16(const std::uint16_t* rows, int count, int columns, Bf16* panel) {
    const int whole = columns - columns % kLanes;
    for (int k = 0; k < whole; k += kLanes) {
        Words w[kLanes];
        for (int n = 0; n < kLanes; ++n) {
            const std::ptrdiff_t low = static_cast<std::ptrdiff_t>(n) * columns + k;
            w[n] = n < count ? load_words(rows + low) : Words{};
            if (n + kLanes < count)
                w[n] |= load_words(rows + low + static_cast<std::ptrdiff_t>(kLanes) * columns) << 16;
        }
        turn(w);
        __builtin_memcpy(panel + static_cast<std::ptrdiff_t>(k) * kPanelOutputs, w, sizeof w);
    }
    for (int k = whole; k < columns; ++k) {
        for (int n = 0; n < kPanelOutputs; ++n) {
            Bf16 value{0};
            if (n < count) value.bits = rows[static_cast<std::ptrdiff_t>(n) * columns + k];
            panel[static_cast<std::ptrdiff_t>(k) * kPanelOutputs + panel_index(Bf16{}, n)] = value;
        }
    }
}

// ---- changing a weight

inline Ints not_finite(Floats value) {
    constexpr std::uint32_t kExponent = 0x7f800000U;
    return ((Words)value & kExponent) == kExponent;
}

/// -> lanes that are not finite as stored.
inline Ints store_panel(float* to, Floats low, Floats high) {
    store(to, low);
    store(to + kLanes, high);
    return not_finite(low) | not_finite(high);
}

/// Nearest even; a NaN may round to anything, so it is told before.
inline Ints store_panel(Bf16* to, Floats low, Floats high) {
    const Words l = (Words)low + 0x7fffU + (((Words)low >> 16) & 1U);
    const Words h = (Words)high + 0x7fffU + (((Words)high >> 16) & 1U);
    const Words words = (l >> 16) | (h & 0xffff0000U);
    __builtin_memcpy(to, &words, sizeof words);
    return not_finite(low) | not_finite(high) | not_finite((Floats)l) | not_finite((Floats)h);
}

template <int Columns, class Element>
inline Ints change_columns(const ChangeCall& call, int first) {
    Element* at = static_cast<Element*>(call.panel) + static_cast<std::ptrdiff_t>(first) * kPanelOutputs;
    Floats low[Columns];
    Floats high[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) load_panel(at + c * kPanelOutputs, low[c], high[c]);
    if (call.row_gain != nullptr || call.column_gain != nullptr) {
        const Floats g0 = call.row_gain != nullptr ? load(call.row_gain) : Floats{};
        const Floats g1 = call.row_gain != nullptr ? load(call.row_gain + kLanes) : Floats{};
        for (int c = 0; c < Columns; ++c) {
            const Floats own = splat(call.column_gain != nullptr ? call.column_gain[first + c] : 0.0F);
            low[c] += low[c] * (g0 + own);
            high[c] += high[c] * (g1 + own);
        }
    }
    const float* a = call.a + first;
    const float* b = call.b;
    for (int k = 0; k < call.rank; ++k, a += call.columns, b += kPanelOutputs) {
        const Floats b0 = load(b);
        const Floats b1 = load(b + kLanes);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const Floats value = splat(a[c]);
            low[c] += b0 * value;
            high[c] += b1 * value;
        }
    }
    for (int s = 0; s < call.shard_count; ++s) {
        for (int c = 0; c < Columns; ++c) {
            const float* row =
                call.shards[s].b + static_cast<std::ptrdiff_t>((first + c) % call.shards[s].rank) * kPanelOutputs;
            low[c] += load(row);
            high[c] += load(row + kLanes);
        }
    }
    Ints bad{};
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) bad |= store_panel(at + c * kPanelOutputs, low[c], high[c]);
    return bad;
}

template <class Element>
bool change_panel(const ChangeCall& call) {
    constexpr int kColumns = ATTUNE_KERNEL_ROWS >= 4 ? 4 : 1;
    Ints bad{};
    int column = 0;
    for (; column + kColumns <= call.columns; column += kColumns)
        bad |= change_columns<kColumns, Element>(call, column);
    for (; column < call.columns; ++column) bad |= change_columns<1, Element>(call, column);
    for (int i = 0; i < kLanes; ++i)
        if (bad[i] != 0) return false;
    return true;
}

// ---- attention

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

// ---- rows

void rms_norm(float* x, const float* delta, const float* weight, float eps, int n, float* out) {
    const int whole = n - n % kLanes;
    Floats squares{};
    for (int i = 0; i < whole; i += kLanes) {
        Floats value = load(x + i);
        if (delta != nullptr) {
            value += load(delta + i);
            store(x + i, value);
        }
        squares += value * value;
    }
    float sum = sum_lanes(squares);
    for (int i = whole; i < n; ++i) {
        if (delta != nullptr) x[i] += delta[i];
        sum += x[i] * x[i];
    }
    const float scale = 1.0F / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) * scale * load(weight + i));
    for (int i = whole; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void rope(float* head, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; ++i) {
        const float a = head[i];
        const float b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = b * cos[i] + a * sin[i];
    }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    const int whole = n - n % kLanes;
    for (int i = 0; i < whole; i += kLanes) {
        const Floats g = load(gate + i);
        store(out + i, g / (exp_lanes(-g) + 1.0F) * load(up + i));
    }
    if (whole == n) return;
    float tail[2][kLanes] = {};
    for (int i = whole; i < n; ++i) {
        tail[0][i - whole] = gate[i];
        tail[1][i - whole] = up[i];
    }
    const Floats g = load(tail[0]);
    store(tail[0], g / (exp_lanes(-g) + 1.0F) * load(tail[1]));
    for (int i = whole; i < n; ++i) out[i] = tail[0][i - whole];
}

}  // namespace

extern const CpuKernels kKernels;
const CpuKernels kKernels{ATTUNE_KERNEL_NAME, gemm<float>,   gemm<Bf16>,   change_panel<float>,
                          change_panel<Bf16>, attend<float>, attend<Bf16>, kv_write<float>,
                          kv_write<Bf16>,     rms_norm,      rope,         silu_mul,
                          pack_bf16};

}  // namespace attune::ATTUNE_KERNEL_SET
