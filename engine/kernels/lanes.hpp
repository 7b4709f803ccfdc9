// Vectors of 16 floats for the loops that are compiled once per instruction set. Included within the unnamed namespace
// of such a file only, so that no set's copy can be picked by the linker for another's; needs bf16.hpp
// and, where the set is AVX-512, immintrin.h.

constexpr int kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Ints __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(32)));
typedef float HalfFloats __attribute__((vector_size(32)));
typedef float QuarterFloats __attribute__((vector_size(16)));

inline Floats load(const float* from) {
    Floats value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

inline Words load_words(const std::uint16_t* from) {
#if defined(__AVX512F__)
    // One instruction; of the conversion below g++ 12 makes two halves and puts them together.
    return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return __builtin_convertvector(halves, Words);
#endif
}

inline Floats load(const Bf16* from) { return (Floats)(load_words(&from->bits) << 16); }

inline void store(float* to, Floats value) { __builtin_memcpy(to, &value, sizeof value); }

/// Written out, for the broadcast alone: `Floats{} + value` would add zero first, as -0 asks for.
inline Floats splat(float v) { return Floats{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }

/// A fixed tree, so that every set gives the same bits: lane i with i + 8, then + 4, + 2, + 1.
inline float sum_lanes(Floats value) {
    HalfFloats half[2];
    __builtin_memcpy(half, &value, sizeof half);
    half[0] += half[1];
    QuarterFloats quarter[2];
    __builtin_memcpy(quarter, half, sizeof quarter);
    quarter[0] += quarter[1];
    return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
}

inline float max_lanes(Floats value) {
    HalfFloats half[2];
    __builtin_memcpy(half, &value, sizeof half);
    half[0] = half[0] > half[1] ? half[0] : half[1];
    QuarterFloats quarter[2];
    __builtin_memcpy(quarter, half, sizeof quarter);
    quarter[0] = quarter[0] > quarter[1] ? quarter[0] : quarter[1];
    const float even = quarter[0][0] > quarter[0][2] ? quarter[0][0] : quarter[0][2];
    const float odd = quarter[0][1] > quarter[0][3] ? quarter[0][1] : quarter[0][3];
    return even > odd ? even : odd;
}
