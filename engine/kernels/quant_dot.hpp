// Dot products of four columns at a time: unsigned codes of kLanes outputs by the signed ones of a row, in the
// instruction set that the including file is compiled for. Included by quant_kernels_impl.hpp only, within its unnamed
// namespace.
//
//   Codes    kLanes outputs x 4 columns
//   Dots     kLanes sums of int32; start<quant>(sum of the row's codes) makes up for zero_code
//   code_vectors<quant>(step, part, low, high): outputs kLanes * part + i and kPanelOutputs / 2 + kLanes * part + i
//   dot<quant>(dots, codes, x): adds x[0..3] . codes

constexpr int kStepBytes8 = kPanelOutputs * 4;  // the codes of four columns

#if defined(__AVX512VNNI__)

constexpr int kLanes = 16;
typedef __m512i Codes;
typedef __m512i Dots;

template <Quant quant>
inline void code_vectors(const std::uint8_t* from, int /*part*/, Codes& low, Codes& high) {
    low = _mm512_loadu_si512(from);
    if constexpr (quant == Quant::int8) {
        high = _mm512_loadu_si512(from + kStepBytes8 / 2);
    } else {
        const __m512i half = _mm512_set1_epi8(15);
        high = _mm512_and_si512(_mm512_srli_epi16(low, 4), half);
        low = _mm512_and_si512(low, half);
    }
}
template <Quant quant>
inline Dots start(std::int32_t sum) {
    return _mm512_set1_epi32(-zero_code(quant) * sum);
}
template <Quant quant>
inline void dot(Dots& dots, Codes codes, std::int32_t x) {
    dots = _mm512_dpbusd_epi32(dots, codes, _mm512_set1_epi32(x));
}

#elif defined(__AVX2__)

constexpr int kLanes = 8;
typedef __m256i Codes;
typedef __m256i Dots;

inline __m256i bytes_at(const std::uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

template <Quant quant>
inline void code_vectors(const std::uint8_t* from, int part, Codes& low, Codes& high) {
    low = bytes_at(from + 32 * part);
    if constexpr (quant == Quant::int8) {
        high = bytes_at(from + kStepBytes8 / 2 + 32 * part);
    } else {
        const __m256i half = _mm256_set1_epi8(15);
        high = _mm256_and_si256(_mm256_srli_epi16(low, 4), half);
        low = _mm256_and_si256(low, half);
    }
}

#if defined(__AVXVNNI__)

template <Quant quant>
inline Dots start(std::int32_t sum) {
    return _mm256_set1_epi32(-zero_code(quant) * sum);
}
template <Quant quant>
inline void dot(Dots& dots, Codes codes, std::int32_t x) {
    dots = _mm256_dpbusd_avx_epi32(dots, codes, _mm256_set1_epi32(x));
}

#else

// vpmaddubsw adds two products in 16 bits and saturates. Codes of 4 bits stay far below that; those of 8 bits are made
// signed first, w = code - 128, and |w| * (x with the sign of w) is at most 128 * 127 * 2 < 32768.
template <Quant quant>
inline Dots start(std::int32_t sum) {
    return _mm256_set1_epi32(quant == Quant::int8 ? 0 : -zero_code(quant) * sum);
}
template <Quant quant>
inline void dot(Dots& dots, Codes codes, std::int32_t x) {
    const __m256i four = _mm256_set1_epi32(x);
    __m256i pairs;
    if constexpr (quant == Quant::int8) {
        const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
        pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four, w));
    } else {
        pairs = _mm256_maddubs_epi16(codes, four);
    }
    dots = _mm256_add_epi32(dots, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#endif

#else

constexpr int kLanes = 4;
typedef std::uint32_t Codes __attribute__((vector_size(16)));
typedef std::int32_t Dots __attribute__((vector_size(16)));
typedef std::int16_t Shorts __attribute__((vector_size(16)));

template <Quant quant>
inline void code_vectors(const std::uint8_t* from, int part, Codes& low, Codes& high) {
    __builtin_memcpy(&low, from + 16 * part, sizeof low);
    if constexpr (quant == Quant::int8) {
        __builtin_memcpy(&high, from + kStepBytes8 / 2 + 16 * part, sizeof high);
    } else {
        high = (low >> 4) & 0x0f0f0f0fU;
        low = low & 0x0f0f0f0fU;
    }
}
template <Quant quant>
inline Dots start(std::int32_t sum) {
    return Dots{} - zero_code(quant) * sum;
}
template <Quant quant>
inline void dot(Dots& dots, Codes codes, std::int32_t x) {
    // A word holds an output's four columns: 0 and 2, then 1 and 3 are multiplied in 16 bits, 255 * 127 < 32768.
    std::int8_t of[4];
    __builtin_memcpy(of, &x, sizeof of);
    for (int odd = 0; odd < 2; ++odd) {
        const std::uint32_t pair = static_cast<std::uint16_t>(of[odd]) |
                                   static_cast<std::uint32_t>(static_cast<std::uint16_t>(of[2 + odd])) << 16;
        const Dots products = (Dots)((Shorts)((codes >> (8 * odd)) & 0x00ff00ffU) * (Shorts)(Codes{} + pair));
        dots += ((Dots)((Codes)products << 16) >> 16) + (products >> 16);
    }
}

#endif
