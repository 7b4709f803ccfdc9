#include "modules_fixture.hpp"

using namespace attune;

namespace {

/// Two modules and room for one in the slots.
class PreemptedFixture : public ModulesFixture {
public:
    PreemptedFixture() {
        with("ab");
        device_bytes = 100;
        settings.cold.policy = ColdPolicy::wait;
        start();
        hold_steps(true);
    }
    /// Messages of the executor, until `done` or enough of them.
    template <class Done>
    bool steps_until(Done done) {
        for (int i = 0; i < 20 && !done(); ++i) {
            step();
            run();
        }
        return done();
    }
    /// A request for `a` with two of its six tokens made, whose blocks a step has just taken.
    Seen preempted(int steps_out) {
        Seen seen = ask("a", 6);
        asked = last_id();
        REQUIRE(steps_until([&] { return seen->text == "aa"; }));
        REQUIRE(engine->preempt(asked, steps_out));
        REQUIRE(steps_until([&] { return cache().leases.at(asked)->stage == Lease::Stage::parked; }));
        REQUIRE(seen->text == "aa");
        return seen;
    }
    void check_clean() {
        hold_steps(false);
        ModulesFixture::check_clean();
    }
    RequestId asked{};
};

}  // namespace

TEST_CASE_METHOD(PreemptedFixture, "a preempted request leaves its slots to others and goes on with the same module",
                 "[actors][cache][preempt]") {
    const Seen first = preempted(8);
    const Seen second = ask("b", 3);
    CHECK(steps_until([&] { return second->text == "bbb"; }));  // it did not wait for the first to end
    CHECK(first->text == "aa");
    CHECK(tier("a") == Tier::host);
    hold_steps(false);
    run();
    REQUIRE(first->ok());
    CHECK(first->text == "aaaaaa");
    CHECK(first->finished->served.size() == 1);
    CHECK(engine->installs == 3);
    CHECK(engine->resumes == 1);
    check_clean();
}

TEST_CASE_METHOD(PreemptedFixture, "a preempted request waits for its slots while another runs in them",
                 "[actors][cache][preempt]") {
    const Seen first = preempted(0);
    const Seen second = ask("b", 5);
    REQUIRE(steps_until([&] { return second->text == "bbbb"; }));
    CHECK(cache().line.size() == 1);
    CHECK(engine->resumes == 0);  // there would be blocks, but no slots
    hold_steps(false);
    run();
    CHECK(second->ok());
    CHECK(first->text == "aaaaaa");
    check_clean();
}

TEST_CASE_METHOD(PreemptedFixture, "where nobody needs the room a preempted request's module stays",
                 "[actors][cache][preempt]") {
    const Seen first = preempted(2);
    CHECK(tier("a") == Tier::resident);
    hold_steps(false);
    run();
    CHECK(first->text == "aaaaaa");
    CHECK(engine->installs == 1);
    CHECK(engine->removes == 0);
    check_clean();
}

TEST_CASE_METHOD(PreemptedFixture, "a preempted request is cancelled in every state", "[actors][cache][preempt][C4]") {
    const Seen first = preempted(1);
    SECTION("while there are no blocks for it") { gateway->cancel(asked); }
    SECTION("while it waits for its slots") {
        const Seen second = ask("b", 9);
        REQUIRE(steps_until([&] { return second->text == "bbbb"; }));
        CHECK(cache().line.size() == 1);
        gateway->cancel(asked);
        REQUIRE(steps_until([&] { return first->ended(); }));
        CHECK(cache().line.empty());
        hold_steps(false);
        run();
        CHECK(second->ok());
    }
    hold_steps(false);
    run();
    CHECK(first->ended());
    CHECK(first->text == "aa");
    CHECK(engine->resumes == 0);
    check_clean();
}

TEST_CASE_METHOD(PreemptedFixture, "a preempted request whose module cannot come back ends with the reason",
                 "[actors][cache][preempt]") {
    const Seen first = preempted(2);
    const Seen second = ask("b", 2);
    REQUIRE(steps_until([&] { return second->text == "b"; }));
    engine->next_install = make_error(Errc::internal, "the device is gone");
    hold_steps(false);
    run();
    CHECK(second->ok());
    REQUIRE(first->ended());
    REQUIRE(first->code() == Errc::internal);
    CHECK(first->error->message == "the device is gone");
    check_clean();
}

TEST_CASE_METHOD(PreemptedFixture, "a name that moves meanwhile leaves a preempted request its generation",
                 "[actors][cache][preempt]") {
    const Seen first = preempted(6);
    disk["root/a"] = FakeSource{"gen-a2"};
    disk["root/a"].mtime = 2;
    const auto loaded = load("a", "root/a", /*inplace=*/true);
    run();
    const Seen second = ask("a", 2);
    hold_steps(false);
    run();
    CHECK(loaded->ok());
    REQUIRE(second->ok());
    CHECK(second->finished->served[0].modules[0].id.generation == "gen-a2");
    REQUIRE(first->ok());
    CHECK(first->finished->served.size() == 1);
    CHECK(first->finished->served[0].modules[0].id.generation == "gen-a");
    check_clean();
}
