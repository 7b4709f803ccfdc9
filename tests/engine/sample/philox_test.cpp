#include "engine/sample/philox.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attune;

TEST_CASE("philox gives the known answers of Random123", "[engine][sample]") {
    using Words = std::array<std::uint32_t, 4>;
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t kOnes = 0xffffffff;
    CHECK(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a token's random number depends on seed, choice and index, and on nothing else", "[engine][sample]") {
    CHECK(token_uniform(1, 0, 0) == token_uniform(1, 0, 0));
    CHECK(token_uniform(1, 0, 0) != token_uniform(2, 0, 0));
    CHECK(token_uniform(1, 0, 0) != token_uniform(1, 1, 0));
    CHECK(token_uniform(1, 0, 0) != token_uniform(1, 0, 1));
    CHECK(token_uniform(1, 0, 1) != token_uniform(1, 1, 0));
    CHECK(token_uniform(1ULL << 40, 0, 0) != token_uniform(0, 0, 0));
}

TEST_CASE("random numbers are uniform from 0 to below 1", "[engine][sample]") {
    int buckets[10] = {};
    double sum = 0;
    for (int i = 0; i < 100000; ++i) {
        const double u = token_uniform(42, i % 3, i);
        REQUIRE((u >= 0 && u < 1));
        ++buckets[static_cast<int>(u * 10)];
        sum += u;
    }
    CHECK(std::fabs(sum / 100000 - 0.5) < 0.005);
    for (const int count : buckets) CHECK(std::abs(count - 10000) < 400);
}
