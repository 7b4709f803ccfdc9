#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;

namespace {

class UsersFixture : public HouseFixture {
public:
    UsersFixture() {
        for (const char* name : {"a", "b", "secret"}) disk[std::string("root/") + name] = FakeSource{name};
        disk["root/secret"].owner = "boss-key";
        settings.modules.idle_unload = "always";
        settings.trigger.idle_s = 60;
        RouteFile file;
        file.users = {{"ann", {}, {{"a", 1.0}, {"secret", 1.0}, {"nobody", 1.0}}}, {"bob", {"legal"}, {}}};
        RouteRule by_tag;
        by_tag.modules = {{"b", 1.0}};
        by_tag.tags = {"legal"};
        file.rules = {by_tag};
        routes.read = [file]() -> Result<RouteFile> { return file; };
        start();
        caf::anon_send(peers->router, routes_atom_v, read_rules(core->routes, nullptr));
        run();
    }
    void greet(const std::string& user) {
        gateway->greet(user, client);
        run();
    }
    void leave(const std::string& user) {
        gateway->leave(user, client);
        run();
    }
    /// The trigger looks once a second.
    void seconds(int count) {
        for (int i = 0; i < count; ++i) pass(1s);
    }

    Caller client{"ann-key", false};
};

}  // namespace

TEST_CASE_METHOD(UsersFixture, "a greeting fetches the user's modules that the caller may use", "[actors][users]") {
    greet("ann");
    CHECK(tier("a") == Tier::resident);
    CHECK(tier("secret") == Tier::cold);  // another owner's: a user's preferences give no rights
    CHECK(tier("b") == Tier::cold);
    greet("bob");
    CHECK(tier("b") == Tier::resident);  // by the user's tag
    greet("nobody");
    CHECK(loads == 2);
}

TEST_CASE_METHOD(UsersFixture, "a user's modules are idle once the last connection has left, not before",
                 "[actors][users]") {
    greet("ann");
    greet("ann");
    seconds(200);
    CHECK(tier("a") == Tier::resident);
    leave("ann");
    seconds(200);
    CHECK(tier("a") == Tier::resident);  // one connection is left
    leave("ann");
    seconds(55);
    CHECK(tier("a") == Tier::resident);
    seconds(10);
    CHECK(tier("a") == Tier::cold);
    leave("ann");  // more leaves than greetings do no harm
    greet("ann");
    CHECK(tier("a") == Tier::resident);
}

TEST_CASE_METHOD(UsersFixture, "a connection of another key under the same user keeps its own count",
                 "[actors][users]") {
    greet("ann");
    client.name = "other-key";
    leave("ann");
    seconds(100);
    CHECK(tier("a") == Tier::resident);
}
