#include "net/keys.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

TEST_CASE("keys give a role and a name", "[net][keys]") {
    const auto ring = KeyRing::parse(R"(
client = ["c1", { key = "c2", name = "ann" }]
admin = [{ key = "a1", name = "root" }]
)");
    REQUIRE(ring);
    CHECK(ring->is_required());
    REQUIRE(ring->find("c1"));
    CHECK_FALSE(ring->find("c1")->admin);
    CHECK(ring->find("c2")->name == "ann");
    CHECK(ring->find("a1")->admin);
    CHECK_FALSE(ring->find("c"));
    CHECK_FALSE(ring->find(""));
    CHECK_FALSE(ring->find("c1 "));
}

TEST_CASE("a key may be written as its SHA-256", "[net][keys]") {
    // SHA-256 of "secret".
    const auto ring =
        KeyRing::parse("admin = [\"sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B\"]");
    REQUIRE(ring);
    CHECK(ring->find("secret")->admin);
    CHECK_FALSE(ring->find("sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B"));
}

TEST_CASE("a key listed for both roles keeps the admin's", "[net][keys]") {
    const auto ring = KeyRing::parse("admin = [\"k\"]\nclient = [\"k\"]");
    REQUIRE(ring);
    CHECK(ring->find("k")->admin);
}

TEST_CASE("faults of a keys file name the entry and never the key", "[net][keys]") {
    const auto message = [](const std::string& text) {
        const auto ring = KeyRing::parse(text);
        return ring ? std::string() : ring.error().message;
    };
    CHECK_THAT(message("client = [\"ok\", \"\"]"), Catch::Contains("client[1]"));
    CHECK_THAT(message("admin = [\"sha256:12\"]"), Catch::Contains("admin[0]") && Catch::Contains("64 hex digits"));
    CHECK_THAT(message("users = [\"k\"]"), Catch::Contains("users"));
    CHECK_THAT(message("client = \"k\""), Catch::Contains("list"));
    CHECK_THAT(message("client = [3]"), Catch::Contains("client[0]"));
    CHECK_THAT(message("client = []"), Catch::Contains("no key"));
    CHECK_THAT(message("client = ["), Catch::Contains("line 1"));
    CHECK_THAT(message("# keys\nclient = [\"k\xFF\"]"), Catch::Contains("line 2: ill-formed UTF-8"));
    CHECK_THAT(message("client = [\"k\"] \xC3\xA9"), Catch::Contains("line 1: a letter beyond ASCII"));
    const auto missing = KeyRing::open("/nowhere/at/all.toml");
    REQUIRE_FALSE(missing);
    CHECK(missing.error().message == "server.keys_file: cannot be read");
}

}  // namespace
}  // namespace attune
