#include "attune/result.hpp"

#include <catch2/catch.hpp>

#include <memory>

using namespace attune;

TEST_CASE("a result holds its value or its error", "[result]") {
    const Result<int> good = 3;
    REQUIRE(good);
    CHECK(*good == 3);

    const Result<int> bad = make_error(Errc::no_room, "no blocks left", "n");
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code == Errc::no_room);
    CHECK(bad.error().message == "no blocks left");
    CHECK(bad.error().param == "n");
}

TEST_CASE("a result gives a move-only value away", "[result]") {
    Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
    REQUIRE(made);
    const std::unique_ptr<int> taken = *std::move(made);
    CHECK(*taken == 5);
}

TEST_CASE("a result without a value is done or failed", "[result]") {
    CHECK(Result<void>{});
    CHECK_FALSE(Result<void>{make_error(Errc::io, "short read")});
}
