#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

class CompositionFixture : public HouseFixture {
public:
    CompositionFixture() {
        disk["root/a"] = FakeSource{"gen-a"};
        disk["root/b"] = FakeSource{"gen-b"};
        disk["root/b"].needs = {{"c", ""}};
        disk["root/c"] = FakeSource{"gen-c"};
        disk["root/duo"] = FakeSource{"none"};
        disk["root/duo"].members = {{"b", 0.5}, {"a", 1.0}};
    }
    Seen wait_for(const std::string& model) {
        GenerationRequest wanted = request(model);
        wanted.cold = ColdPolicy::wait;
        return ask(wanted);
    }
};

}  // namespace

TEST_CASE_METHOD(CompositionFixture, "a composition answers with its members and what they require",
                 "[actors][composition]") {
    start();
    const Seen seen = wait_for("duo");
    REQUIRE(seen->ok());
    CHECK(loads == 3);
    CHECK(tier("a") == Tier::resident);
    CHECK(tier("b") == Tier::resident);
    CHECK(tier("c") == Tier::resident);
    CHECK(tier("duo") == Tier::cold);
    CHECK(loads_of.count("root/duo") == 0);
}

TEST_CASE_METHOD(CompositionFixture, "a composition whose members never fit together loads none of them",
                 "[actors][composition]") {
    settings.modules.host_bytes = 250;
    start();
    const Seen seen = wait_for("duo");
    CHECK(seen->code() == Errc::invalid_argument);
    CHECK(seen->text.empty());
    CHECK(loads == 0);
    CHECK(cache().leases.empty());
    CHECK(wait_for("a")->ok());
}

TEST_CASE_METHOD(CompositionFixture, "a missing requirement is named and the base does not answer",
                 "[actors][composition]") {
    disk["root/b"].needs = {{"nobody", ""}};
    start();
    const Seen seen = wait_for("b");
    CHECK(seen->code() == Errc::unknown_model);
    CHECK(seen->error->message.find("nobody") != std::string::npos);
    CHECK(seen->text.empty());
    CHECK(loads == 0);
}

TEST_CASE_METHOD(CompositionFixture, "a required generation is checked once it is loaded", "[actors][composition]") {
    disk["root/b"].needs = {{"c", std::string(64, 'f')}};
    start();
    const Seen seen = wait_for("b");
    CHECK(seen->code() == Errc::invalid_argument);
    CHECK(seen->text.empty());
    CHECK(cache().leases.empty());
}

TEST_CASE_METHOD(CompositionFixture, "orders for memory say that a composition has none", "[actors][composition]") {
    start();
    CHECK(order("duo", ModuleOrder::load)->code() == Errc::invalid_argument);
    CHECK(order("duo", ModuleOrder::pin)->code() == Errc::invalid_argument);
    CHECK_FALSE(module("duo")->pinned);
}

TEST_CASE_METHOD(CompositionFixture, "jobs carry the client's salt and every owner of what was asked for",
                 "[actors][composition][prefix]") {
    using Owners = std::set<std::string>;
    disk["root/a"].owner = "alice";
    disk["root/duo"].owner = "bob";
    start();
    GenerationRequest salted = request("duo");
    salted.cold = ColdPolicy::wait;
    salted.cache_salt = "pepper";
    REQUIRE(ask(salted)->ok());
    CHECK(engine->last_salt == "pepper");
    for (const char* const member : {"a", "b", "c"}) CHECK(engine->owners.at(member) == Owners{"alice", "bob"});
    REQUIRE(wait_for("b")->ok());
    CHECK(engine->last_salt.empty());
    CHECK(engine->owners.at("b").empty());
}

TEST_CASE_METHOD(CompositionFixture, "an upgrade carries the owners of its modules", "[actors][composition][prefix]") {
    disk["root/a"].owner = "alice";
    start();
    GenerationRequest cold = request("a", 8);
    cold.cold = ColdPolicy::upgrade;
    hold_loads(true);
    hold_steps(true);
    const Seen seen = ask(cold);
    step();
    CHECK(engine->owners.empty());  // the base's part is everybody's
    hold_loads(false);
    run();
    step();  // install
    step();
    hold_steps(false);
    run();
    REQUIRE(seen->switched);
    CHECK(engine->owners.at("a") == std::set<std::string>{"alice"});
}
