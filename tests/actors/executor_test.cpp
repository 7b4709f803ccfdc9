#include "house_fixture.hpp"

#include "actors/executor.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <utility>

using namespace attune;

TEST_CASE_METHOD(HouseFixture, "the executor sleeps until a job arrives and parks after the last step",
                 "[actors][executor]") {
    start();
    CHECK(engine->steps == 0);
    CHECK_FALSE(scheduler().has_job());
    const Seen seen = ask("base", 3);
    CHECK(seen->ok());
    CHECK(engine->steps == 3);
    CHECK_FALSE(scheduler().has_job());
}

TEST_CASE_METHOD(HouseFixture, "a job that arrives while others run joins at the next step", "[actors][executor]") {
    start();
    hold_steps(true);
    const Seen first = ask("base", 5);
    step();
    step();
    const Seen second = ask("base", 2);
    CHECK(second->text.empty());
    step();
    CHECK(first->text == "...");
    CHECK(second->text == ".");
    hold_steps(false);
    run();
    CHECK(first->ok());
    CHECK(second->ok());
}

TEST_CASE_METHOD(HouseFixture, "a step that throws through the engine fails its requests and the process goes on",
                 "[actors][executor]") {
    start();
    engine->before_step = [thrown = false]() mutable {
        if (!std::exchange(thrown, true)) throw std::runtime_error("device");
    };
    const Seen doomed = ask("base");
    CHECK(doomed->code() == Errc::internal);
    CHECK(doomed->ended());
    CHECK(ask("base")->ok());
    CHECK(gateway->ready(nullptr));
    CHECK(metrics().find("attune_engine_faults_total{engine=\"0\",model_name=\"base\"} 1") != std::string::npos);
}

TEST_CASE_METHOD(HouseFixture, "an engine that throws at every step is given up and the server is not ready",
                 "[actors][executor][supervisor]") {
    start();
    engine->before_step = [] { throw std::runtime_error("device"); };
    for (int i = 0; i < ExecutorState::kFaultsInARow; ++i) CHECK(ask("base")->ended());
    std::string why;
    CHECK_FALSE(gateway->ready(&why));
    CHECK(why == "a part of the server is gone");
    const Seen late = ask("base");
    CHECK(late->code() == Errc::unavailable);
}

TEST_CASE_METHOD(HouseFixture, "a job the engine refuses at once leaves no trace", "[actors][executor]") {
    start();
    engine->refuses_jobs = true;
    const Seen seen = ask("base");
    CHECK(seen->code() == Errc::context_exceeded);
    engine->refuses_jobs = false;
    CHECK(ask("base")->ok());
}

TEST_CASE_METHOD(HouseFixture, "a cancel sent right after a job finds the job although it is still in the inbox",
                 "[actors][executor]") {
    start();
    hold_steps(true);
    const Seen seen = ask("base", 50);
    gateway->cancel(last_id());
    run();
    hold_steps(false);
    run();
    CHECK(seen->ok());
    CHECK(seen->finished->usage.completion_tokens <= 1);  // the bell's own step came first
    CHECK(engine->running() == 0);
}

TEST_CASE("the last owner of a sink ends it", "[actors]") {
    auto seen = std::make_shared<SeenAnswer>();
    { OnceSink sink(seen); }
    CHECK(seen->code() == Errc::unavailable);
    CHECK(seen->ended());
}

TEST_CASE("nothing passes a sink after its end", "[actors]") {
    auto seen = std::make_shared<SeenAnswer>();
    {
        OnceSink sink(seen);
        sink.push(Finished{});
        sink.push(TokenEvent{0, 1, "late", false, {}});
        sink.fail(make_error(Errc::internal, "late"));
    }
    CHECK(seen->ok());
    CHECK(seen->text.empty());
}

TEST_CASE_METHOD(HouseFixture, "a large module is installed in pieces between the steps of those who run",
                 "[actors][executor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    disk["root/b"] = FakeSource{"gen-b"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    engine->install_pieces = 5;
    hold_steps(true);
    const Seen running = ask("base", 12);
    const auto tick = [&] {
        step();
        run();
    };
    while (running->text.empty()) tick();
    const Seen first = ask("a", 1);
    const Seen second = ask("b", 1);
    for (int i = 0; i < 4; ++i) tick();
    CHECK(running->text.size() >= 3);  // it went on meanwhile
    CHECK(engine->installs == 0);
    for (int i = 0; i < 4; ++i) tick();
    CHECK(engine->installs == 1);
    CHECK(first->ok());
    CHECK_FALSE(second->admitted.has_value());
    hold_steps(false);
    run();
    CHECK(running->ok());
    CHECK(second->ok());
    CHECK(engine->broken_rules.empty());
}

TEST_CASE_METHOD(HouseFixture, "beside nobody a large module is installed at once", "[actors][executor]") {
    disk["root/a"] = FakeSource{"gen-a"};
    settings.cold.policy = ColdPolicy::wait;
    start();
    engine->install_pieces = 1000000;
    CHECK(ask("a", 1)->ok());
    CHECK(tier("a") == Tier::resident);
}
