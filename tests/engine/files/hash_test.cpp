#include "engine/files/hash.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

TEST_CASE("SHA-256 gives the published digests", "[engine][files]") {
    CHECK(Sha256().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    Sha256 abc;
    abc.update("abc");
    CHECK(abc.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("a hash does not depend on how its input was cut", "[engine][files]") {
    const std::string text(1000, 'x');
    Sha256 whole;
    whole.update(text);
    Sha256 pieces;
    for (std::size_t at = 0; at < text.size(); at += 7) pieces.update(std::string_view(text).substr(at, 7));
    CHECK(whole.hex() == pieces.hex());

    Xxh128 quick;
    quick.update(std::as_bytes(std::span(text)));
    Xxh128 sliced;
    for (std::size_t at = 0; at < text.size(); at += 7)
        sliced.update(std::as_bytes(std::span(text)).subspan(at, std::min<std::size_t>(7, text.size() - at)));
    CHECK(quick.hex() == sliced.hex());
}

TEST_CASE("SHA-256 on a thread of its own gives the same digest", "[engine][files]") {
    CHECK(Sha256::on_own_thread().hex() == Sha256().hex());
    // More than may wait at once, in pieces small and large.
    const std::string text(3 * Sha256::kWaitingBytes, 'y');
    Sha256 here;
    here.update(text);
    Sha256 there = Sha256::on_own_thread();
    there.update(std::string_view(text).substr(0, 1));
    there.update(std::string_view(text).substr(1, 2 * Sha256::kWaitingBytes));
    there.update(std::string_view(text).substr(1 + 2 * Sha256::kWaitingBytes));
    CHECK(there.hex() == here.hex());
    // One that is given up, and one that takes another's place, end their threads.
    Sha256 replaced = Sha256::on_own_thread();
    replaced.update("abc");
    replaced = Sha256();
    CHECK(replaced.hex() == Sha256().hex());
}

TEST_CASE("XXH3-128 gives the reference digest of nothing and sees every bit", "[engine][files]") {
    CHECK(Xxh128().hex() == "99aa06d3014798d86001c324468d497f");
    std::string text(4096, '\0');
    Xxh128 zeros;
    zeros.update(std::as_bytes(std::span(text)));
    text[4000] = 1;
    Xxh128 flipped;
    flipped.update(std::as_bytes(std::span(text)));
    CHECK(zeros.hex() != flipped.hex());
    CHECK(zeros.hex().size() == 32);
}

}  // namespace
}  // namespace attune
