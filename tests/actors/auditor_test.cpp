#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;

TEST_CASE_METHOD(HouseFixture, "a fresh base is verified and its hash is that of its load", "[actors][audit]") {
    start();
    const AuditStatus status = audit(false);
    CHECK(status.ok);
    CHECK(status.state == "verified");
    CHECK(status.checkpoint == "sha256:base");
    CHECK(status.expected == status.measured);
    CHECK(status.runs == 0);
}

TEST_CASE_METHOD(HouseFixture, "an ordered audit answers after a full pass", "[actors][audit]") {
    start();
    const AuditStatus status = audit(true);
    CHECK(status.ok);
    CHECK(status.runs == 1);
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < core->audit->tensors(); ++i) total += core->audit->bytes(i);
    CHECK(engine->fake_audit()->hashed >= total);
}

TEST_CASE_METHOD(HouseFixture, "a flipped bit raises the alarm: not ready, 503, named tensor, metric",
                 "[actors][audit]") {
    start();
    engine->fake_audit()->flip_bit(1, 3);
    const AuditStatus status = audit(true);
    CHECK_FALSE(status.ok);
    CHECK(status.state == "alarm");
    CHECK(status.damaged == std::vector<std::string>{"layers.0"});
    CHECK(status.alarms == 1);
    CHECK(status.measured != status.expected);
    std::string why;
    CHECK_FALSE(gateway->ready(&why));
    CHECK(why == "the audit found the resident base changed");
    CHECK(ask("base")->code() == Errc::base_damaged);
    CHECK(metrics().find("attune_audit_alarms_total{engine=\"0\",model_name=\"base\"} 1") != std::string::npos);
    audit(true);
    CHECK(audit(false).alarms == 1);  // told once
}

TEST_CASE_METHOD(HouseFixture, "the background finds a flipped bit within one pass of its interval",
                 "[actors][audit]") {
    settings.audit.interval_s = 2;
    start();
    for (int tick = 0; tick < 60; ++tick) pass(50ms);
    CHECK(audit(false).runs >= 1);
    CHECK(gateway->ready(nullptr));
    engine->fake_audit()->flip_bit(2, 0);
    // One pass, and one tick for each tensor's rounding; twice, since a pass may be past the tensor already.
    for (int tick = 0; tick < 2 * 50 && gateway->ready(nullptr); ++tick) pass(50ms);
    CHECK_FALSE(gateway->ready(nullptr));
}

TEST_CASE_METHOD(HouseFixture, "the background keeps to its rate", "[actors][audit]") {
    settings.audit.interval_s = 0.001;
    settings.audit.bytes_per_s = 40;  // 2 bytes a tick
    start();
    const auto before = engine->fake_audit()->hashed;
    for (int tick = 0; tick < 10; ++tick) pass(50ms);
    CHECK(engine->fake_audit()->hashed - before == 20);
}

TEST_CASE_METHOD(HouseFixture, "an ordered pass sees damage in what the background had already hashed",
                 "[actors][audit]") {
    settings.audit.interval_s = 100;
    settings.audit.bytes_per_s = 100;
    start();
    for (int tick = 0; tick < 4; ++tick) pass(50ms);
    REQUIRE(engine->fake_audit()->hashed > 0);
    engine->fake_audit()->flip_bit(0, 0);  // the background is past this byte
    CHECK_FALSE(audit(true).ok);
}

TEST_CASE_METHOD(HouseFixture, "audits asked for during a pass are answered by a later one", "[actors][audit]") {
    start();
    int answers = 0;
    std::uint64_t last_runs = 0;
    for (int i = 0; i < 3; ++i)
        gateway->audit(true, [&](Result<AuditStatus> status) {
            ++answers;
            last_runs = status->runs;
        });
    run();
    CHECK(answers == 3);
    CHECK(last_runs == 2);
}

TEST_CASE_METHOD(HouseFixture, "after the alarm no running request gets another token", "[actors][audit]") {
    start();
    hold_steps(true);
    const Seen running = ask("base", 50);
    step();
    step();
    engine->fake_audit()->flip_bit(0, 0);
    CHECK_FALSE(audit(true).ok);
    const std::string before = running->text;
    hold_steps(false);
    run();
    CHECK(running->code() == Errc::base_damaged);
    CHECK(running->ended());
    CHECK(running->text == before);
    CHECK(engine->running() == 0);
    CHECK(cache().leases.empty());
}
