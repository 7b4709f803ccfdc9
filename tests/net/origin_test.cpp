#include "net/origin.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

TEST_CASE("loopback hosts are recognised with and without port, and nothing that looks like one", "[net][origin]") {
    for (const auto* host : {"localhost", "LOCALHOST:8000", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:8000"})
        CHECK(is_loopback_host(host));
    for (const auto* host : {"", "localhost.evil.com", "127.0.0.1.evil.com", "127.0.0.1:", "evil.com:80", "128.0.0.1",
                             "127.0.0", "127.0.0.256", "localhost:80:80", "[::1", "127.1"})
        CHECK_FALSE(is_loopback_host(host));
}

TEST_CASE("server.hosts names further hosts, with any port unless one is given", "[net][origin]") {
    ServerSettings settings;
    settings.hosts = {"box.lan", "gate.lan:8443"};
    CHECK(is_host_allowed("box.lan", settings));
    CHECK(is_host_allowed("BOX.lan:9000", settings));
    CHECK(is_host_allowed("gate.lan:8443", settings));
    CHECK_FALSE(is_host_allowed("gate.lan:80", settings));
    CHECK_FALSE(is_host_allowed("other.lan", settings));
}

TEST_CASE("an origin is the server's own when its authority equals Host", "[net][origin]") {
    CHECK(is_own_origin("http://localhost:8000", "localhost:8000"));
    CHECK(is_own_origin("https://Box.lan", "box.lan"));
    CHECK_FALSE(is_own_origin("http://localhost:8001", "localhost:8000"));
    CHECK_FALSE(is_own_origin("null", "localhost"));
    CHECK_FALSE(is_own_origin("http://", ""));
    CHECK_FALSE(is_own_origin("file://localhost", "localhost"));
}

}  // namespace
}  // namespace attune
