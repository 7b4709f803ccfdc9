#pragma once

#include "house_fixture.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace attune {

/// A house with modules a, b, c, ... under its root, 100 bytes each.
class ModulesFixture : public HouseFixture {
public:
    void with(const std::string& names) {
        for (const char c : names) disk["root/" + std::string(1, c)] = FakeSource{std::string("gen-") + c};
    }
    void check_clean() {
        run();
        CHECK(engine->broken_rules.empty());
        CHECK(engine->running() == 0);
        CHECK(cache().leases.empty());
        CHECK(cache().line.empty());
        CHECK(cache().loads.empty());
        std::uint64_t host = 0;
        std::uint64_t device = 0;
        for (const auto& [generation, copy] : cache().copies) {
            CHECK(copy->leases == 0);
            CHECK(copy->users == 0);
            host += copy->module->host_bytes;
            if (copy->place == Copy::Place::resident) device += copy->slot_bytes;
        }
        CHECK(cache().host_used == host);
        CHECK(cache().device_used == device);
        CHECK(*live_bytes == host);
    }
};

}  // namespace attune
