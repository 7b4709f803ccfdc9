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
    CHECK(tier("duo") == Tier::resident);  // as its members are
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

TEST_CASE_METHOD(CompositionFixture, "orders for a composition are orders for its members", "[actors][composition]") {
    start();
    const auto loaded = order("duo", ModuleOrder::load);
    REQUIRE(loaded->ok());
    CHECK((*loaded->answer)->name == "duo");
    CHECK(tier("a") == Tier::resident);
    CHECK(tier("b") == Tier::resident);
    CHECK(tier("c") == Tier::cold);  // what members require comes with a request
    CHECK(tier("duo") == Tier::resident);

    REQUIRE(order("a", ModuleOrder::pin)->ok());
    REQUIRE(order("duo", ModuleOrder::unload)->ok());
    CHECK(tier("a") == Tier::resident);  // pinned by its own name
    CHECK(tier("b") == Tier::cold);
    CHECK(tier("duo") == Tier::cold);
    CHECK(cache().line.empty());
}

TEST_CASE_METHOD(CompositionFixture, "pinning a composition pins its members, and only as long as it is pinned",
                 "[actors][composition]") {
    start();
    REQUIRE(order("a", ModuleOrder::pin)->ok());
    REQUIRE(order("duo", ModuleOrder::pin)->ok());
    for (const char* name : {"a", "b", "duo"}) {
        CHECK(module(name)->pinned);
        CHECK(tier(name) == Tier::resident);
    }
    CHECK_FALSE(module("c")->pinned);
    const auto refused = order("b", ModuleOrder::unload);
    CHECK(refused->code() == Errc::conflict);
    CHECK(refused->answer->error().message.find("by a composition") != std::string::npos);
    REQUIRE(order("duo", ModuleOrder::unpin)->ok());
    CHECK(module("a")->pinned);
    CHECK_FALSE(module("b")->pinned);
    CHECK(order("b", ModuleOrder::unload)->ok());
    REQUIRE(order("duo", ModuleOrder::pin)->ok());
    REQUIRE(remove("duo")->ok());
    CHECK_FALSE(module("b")->pinned);
}

TEST_CASE_METHOD(CompositionFixture, "pinned members are not pushed out", "[actors][composition]") {
    device_bytes = 300;
    disk["root/other"] = FakeSource{"gen-other"};
    disk["root/large"] = FakeSource{"gen-large", 200};
    settings.modules.pinned = {"duo"};
    start();
    CHECK(tier("duo") == Tier::resident);
    CHECK(wait_for("other")->ok());
    GenerationRequest wanted = request("large");
    wanted.cold = ColdPolicy::fallback;
    CHECK(ask(wanted)->text == "...");
    CHECK(tier("a") == Tier::resident);
    CHECK(tier("b") == Tier::resident);
}

TEST_CASE_METHOD(CompositionFixture, "a composition is listed with its members and as cold as the coldest of them",
                 "[actors][composition]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    disk["root/lost"] = FakeSource{"none"};
    disk["root/lost"].members = {{"a", 1.0}, {"nobody", 1.0}};
    disk["root/duo"].combine = Combine::parallel;
    start();
    CHECK(wait_for("b")->ok());
    auto duo = *module("duo");
    CHECK(duo.tier == Tier::cold);
    CHECK(duo.bytes == 0);
    CHECK_FALSE(duo.generation);
    REQUIRE(duo.members.size() == 2);
    CHECK(duo.members[0].name == "b");
    CHECK(duo.members[0].weight == 0.5);
    CHECK(duo.combine == Combine::parallel);
    CHECK(wait_for("a")->code() == Errc::invalid_module);
    duo = *module("duo");
    CHECK(duo.tier == Tier::failed);
    CHECK(duo.last_error->find("member `a`") != std::string::npos);
    CHECK(module("lost")->tier == Tier::failed);
    CHECK(order("lost", ModuleOrder::pin)->code() == Errc::unknown_model);
    CHECK_FALSE(module("lost")->pinned);
    CHECK(order("lost", ModuleOrder::load)->code() == Errc::unknown_model);
}

TEST_CASE_METHOD(CompositionFixture, "compositions that combine in different ways need a request that says how",
                 "[actors][composition]") {
    disk["root/pair"] = FakeSource{"none"};
    disk["root/pair"].members = {{"c", 1.0}};
    disk["root/pair"].combine = Combine::parallel;
    start();
    GenerationRequest wanted = request("base");
    wanted.modules = {{"duo", 1.0}, {"pair", 1.0}};
    wanted.cold = ColdPolicy::wait;
    const Seen refused = ask(wanted);
    CHECK(refused->code() == Errc::invalid_argument);
    CHECK(refused->error->message.find("`combine`") != std::string::npos);
    wanted.id = gateway->next_id();
    wanted.combine = Combine::sequence;
    CHECK(ask(wanted)->ok());
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
