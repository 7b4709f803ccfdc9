// Included after lanes.hpp, in the same way.

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
