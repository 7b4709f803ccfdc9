#include "engine/module/arena.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>

namespace attune {
namespace {

TEST_CASE("an arena hands out the first hole that fits", "[engine][slots]") {
    Arena arena(1024);
    CHECK(arena.take(64) == 0u);
    CHECK(arena.take(1) == 64u);
    CHECK(arena.take(128) == 128u);
    CHECK(arena.used() == 256);
    arena.give(64, 1);
    CHECK(arena.take(65) == 256u);
    CHECK(arena.take(64) == 64u);
}

TEST_CASE("freed neighbours become one hole", "[engine][slots]") {
    Arena arena(256);
    for (int i = 0; i < 4; ++i) REQUIRE(arena.take(64));
    CHECK_FALSE(arena.take(1));
    // The middle last: it joins both sides.
    arena.give(0, 64);
    arena.give(128, 64);
    CHECK_FALSE(arena.take(128));
    arena.give(64, 64);
    CHECK(arena.take(192) == 0u);
    arena.give(192, 64);
    arena.give(0, 192);
    CHECK(arena.take(256) == 0u);
}

TEST_CASE("an arena of odd size holds whole places only", "[engine][slots]") {
    CHECK(Arena(100).capacity() == 64);
    CHECK(Arena(63).capacity() == 0);
    CHECK_FALSE(Arena(0).take(1));
}

TEST_CASE("places never overlap and nothing is lost in a thousand random turns", "[engine][slots]") {
    std::mt19937 random(7);
    Arena arena(1 << 16);
    std::map<std::uint64_t, std::uint64_t> taken;
    for (int turn = 0; turn < 1000; ++turn) {
        if (!taken.empty() && random() % 2 == 0) {
            const auto at = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
            arena.give(at->first, at->second);
            taken.erase(at);
        } else if (const std::uint64_t bytes = 1 + random() % 5000; const auto offset = arena.take(bytes)) {
            REQUIRE(*offset % Arena::kAlignment == 0);
            REQUIRE(*offset + bytes <= arena.capacity());
            const auto after = taken.lower_bound(*offset);
            if (after != taken.end()) REQUIRE(*offset + bytes <= after->first);
            if (after != taken.begin()) REQUIRE(std::prev(after)->first + std::prev(after)->second <= *offset);
            taken[*offset] = bytes;
        }
        std::uint64_t used = 0;
        for (const auto& [offset, bytes] : taken) used += Arena::rounded(bytes);
        REQUIRE(arena.used() == used);
    }
    for (const auto& [offset, bytes] : taken) arena.give(offset, bytes);
    CHECK(arena.used() == 0);
    CHECK(arena.take(1 << 16) == 0u);
}

}  // namespace
}  // namespace attune
