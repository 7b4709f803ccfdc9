// Writing keys and values of a step into the paged cache. Included by cpu_kernels_impl.hpp only, within its unnamed
// namespace.

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
