#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// Modules of 100 bytes, which take 100 more in a slot.
class OwnersFixture : public HouseFixture {
public:
    OwnersFixture() {
        for (const char* name : {"a1", "a2", "a3", "b1", "free1", "free2"}) {
            FakeSource source{name};
            if (name[0] != 'f') source.owner = name[0] == 'a' ? "ann" : "bob";
            disk[std::string("root/") + name] = source;
        }
        settings.cold.policy = ColdPolicy::wait;
    }
    Seen ask_as(const std::string& who, const std::string& model) {
        GenerationRequest asked = request(model);
        asked.caller = Caller{who, false};
        return ask(asked);
    }
};

}  // namespace

TEST_CASE_METHOD(OwnersFixture, "an owner's idle modules make room for their next one, and nobody else's do",
                 "[actors][owners]") {
    settings.limits.owner_modules = 2;
    start();
    CHECK(ask("free1")->ok());
    CHECK(ask_as("bob", "b1")->ok());
    CHECK(ask_as("ann", "a1")->ok());
    pass(1s);
    CHECK(ask_as("ann", "a2")->ok());
    pass(1s);
    CHECK(ask_as("ann", "a3")->ok());
    CHECK(tier("a1") == Tier::cold);  // the one not used for longest
    CHECK(tier("a2") == Tier::resident);
    CHECK(tier("a3") == Tier::resident);
    CHECK(tier("b1") == Tier::resident);
    CHECK(tier("free1") == Tier::resident);
    CHECK(ask("free2")->ok());  // modules without an owner have no such limit
}

TEST_CASE_METHOD(OwnersFixture, "an owner's modules leave in the order that modules.eviction says",
                 "[actors][owners]") {
    settings.limits.owner_modules = 2;
    const bool by_cost = GENERATE(true, false);
    settings.modules.eviction = by_cost ? "cost" : "lru";
    start();
    for (int i = 0; i < 5; ++i) CHECK(ask_as("ann", "a1")->ok());
    pass(1s);
    CHECK(ask_as("ann", "a2")->ok());
    pass(1s);
    CHECK(ask_as("ann", "a3")->ok());
    CHECK(tier("a1") == (by_cost ? Tier::resident : Tier::cold));
    CHECK(tier("a2") == (by_cost ? Tier::cold : Tier::resident));
}

TEST_CASE_METHOD(OwnersFixture, "over the limit with modules in use is 429, and goes when they do",
                 "[actors][owners]") {
    settings.limits.owner_modules = 1;
    start();
    hold_steps(true);
    const Seen running = ask_as("ann", "a1");
    step();
    const Seen refused = ask_as("ann", "a2");
    CHECK(refused->code() == Errc::overloaded);
    CHECK_THAT(refused->error->message, Contains("owner `ann` would be 2 in memory") && Contains("owner_modules is 1"));
    CHECK(ask_as("ann", "a1")->code() == Errc::ok);  // what is there already is no new one
    const Seen other = ask_as("bob", "b1");
    hold_steps(false);
    run();
    CHECK(running->ok());
    CHECK(other->ok());
    CHECK(ask_as("ann", "a2")->ok());
    CHECK(tier("a1") == Tier::cold);
}

TEST_CASE_METHOD(OwnersFixture, "bytes count in host memory and in slots", "[actors][owners]") {
    settings.limits.owner_bytes = 399;
    start();
    CHECK(ask_as("ann", "a1")->ok());  // 100 + 100
    CHECK(ask_as("ann", "a2")->ok());  // as much again, but its slot's size is known after its first load only
    CHECK(tier("a1") == Tier::cold);
    CHECK(tier("a2") == Tier::resident);
    CHECK(ask_as("bob", "b1")->ok());
    CHECK(tier("a2") == Tier::resident);
    disk["root/a3"].bytes = 500;
    caf::anon_send(peers->cache_manager, reload_atom_v);
    run();
    const Seen never = ask_as("ann", "a3");
    CHECK(never->code() == Errc::invalid_argument);
    CHECK_THAT(never->error->message, Contains("500 bytes") && Contains("limits.owner_bytes 399"));
}

TEST_CASE_METHOD(OwnersFixture, "an owner's hot modules do not push each other out for ever", "[actors][owners]") {
    settings.limits.owner_modules = 1;
    start();
    for (int i = 0; i < settings.trigger.hot_hits; ++i) CHECK(ask_as("ann", "a1")->ok());
    for (int i = 0; i < settings.trigger.hot_hits; ++i) CHECK(ask_as("ann", "a2")->ok());
    for (int i = 0; i < 5; ++i) pass(1s);
    CHECK(tier("a2") == Tier::resident);
    CHECK(loads == 2);
}

TEST_CASE_METHOD(OwnersFixture, "orders and pins stand under the owner's limit, too", "[actors][owners]") {
    settings.limits.owner_modules = 1;
    start();
    CHECK(order("a1", ModuleOrder::pin)->ok());
    CHECK(tier("a1") == Tier::resident);
    CHECK(order("a2", ModuleOrder::load)->code() == Errc::overloaded);
    CHECK(tier("a2") == Tier::cold);
    CHECK(order("free1", ModuleOrder::load)->ok());
}
