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

TEST_CASE_METHOD(HouseFixture, "a flipped bit raises the alarm, the tensor is restored, and the house serves again",
                 "[actors][audit]") {
    start();
    engine->fake_audit()->flip_bit(1, 3);
    std::optional<AuditStatus> told;
    bool ready_when_told = true;
    gateway->audit(true, [&](Result<AuditStatus> status) {
        told = *status;
        ready_when_told = gateway->ready(nullptr);
    });
    run();
    REQUIRE(told);  // of the pass that found it
    CHECK_FALSE(told->ok);
    CHECK(told->state == "alarm");
    CHECK(told->damaged == std::vector<std::string>{"layers.0"});
    CHECK(told->alarms == 1);
    CHECK(told->measured != told->expected);
    CHECK_FALSE(ready_when_told);

    CHECK(engine->repairs == std::vector<std::vector<std::size_t>>{{1}});
    const AuditStatus after = audit(false);
    CHECK(after.ok);
    CHECK(after.state == "verified");
    CHECK(after.measured == after.expected);
    CHECK(after.damaged.empty());
    CHECK(after.alarms == 1);
    CHECK(gateway->ready(nullptr));
    CHECK(ask("base")->ok());
    CHECK(audit(true).ok);
    CHECK(metrics().find("attune_audit_alarms_total{engine=\"0\",model_name=\"base\"} 1") != std::string::npos);
    CHECK(metrics().find("attune_audit_repairs_total{engine=\"0\",model_name=\"base\"} 1") != std::string::npos);
    CHECK(metrics().find("attune_base_ok{engine=\"0\",model_name=\"base\"} 1") != std::string::npos);

    engine->fake_audit()->flip_bit(1, 3);  // the same again
    CHECK(audit(true).alarms == 2);
    CHECK(audit(false).ok);
}

TEST_CASE_METHOD(HouseFixture, "damage whose source has changed, too, stays an alarm and says so", "[actors][audit]") {
    start();
    engine->fake_audit()->flip_bit(1, 3);
    engine->fake_audit()->source_changed = true;
    CHECK(audit(true).state == "alarm");
    const AuditStatus status = audit(false);
    CHECK_FALSE(status.ok);
    CHECK(status.state == "alarm");
    CHECK(status.damaged == std::vector<std::string>{"layers.0"});
    CHECK(status.measured != status.expected);
    std::string why;
    CHECK_FALSE(gateway->ready(&why));
    CHECK(why == "the resident base changed and could not be restored: its source has changed, too");
    CHECK(ask("base")->code() == Errc::base_damaged);
    CHECK(metrics().find("attune_base_ok{engine=\"0\",model_name=\"base\"} 0") != std::string::npos);

    // Whoever brings the source back asks for a pass, which tries again.
    engine->fake_audit()->source_changed = false;
    CHECK(audit(true).alarms == 1);  // told once
    CHECK(audit(false).ok);
    CHECK(gateway->ready(nullptr));
    CHECK(ask("base")->ok());
}

TEST_CASE_METHOD(HouseFixture, "the rest of the base is looked at before anything is repaired", "[actors][audit]") {
    settings.audit.interval_s = 100;
    settings.audit.bytes_per_s = 100;  // the background needs several ticks for a tensor
    start();
    engine->fake_audit()->flip_bit(0, 0);
    engine->fake_audit()->flip_bit(2, 0);
    for (int tick = 0; tick < 20 && engine->repairs.empty(); ++tick) pass(50ms);
    CHECK(engine->repairs == std::vector<std::vector<std::size_t>>{{0, 2}});
    const AuditStatus status = audit(false);
    CHECK(status.ok);
    CHECK(status.alarms == 1);
    CHECK(gateway->ready(nullptr));
}

TEST_CASE_METHOD(HouseFixture, "the executor hears since when a damaged tensor was not known to be right",
                 "[actors][audit]") {
    start();
    const TimePoint first = now;
    pass(1s);
    audit(true);
    const TimePoint good = now;
    pass(1s);
    engine->fake_audit()->flip_bit(0, 0);
    audit(true);
    REQUIRE(engine->good_times.size() == 1);
    CHECK(engine->good_times[0] == good);
    CHECK(good > first);
    pass(1s);
    engine->fake_audit()->flip_bit(1, 0);  // never looked at alone, so since the last whole pass
    audit(true);
    REQUIRE(engine->good_times.size() == 2);
    CHECK(engine->good_times[1] == good + 1s);
}

TEST_CASE_METHOD(HouseFixture, "a tensor the executor finds damaged stops it until the base was looked at",
                 "[actors][audit]") {
    start();
    hold_steps(true);
    const Seen running = ask("base", 3);
    step();
    engine->fake_audit()->flip_bit(2, 1);
    engine->next_damage = make_error(Errc::base_damaged, "tensor \"norm\" is not as it was loaded");
    hold_steps(false);
    run();
    CHECK(engine->repairs == std::vector<std::vector<std::size_t>>{{2}});
    CHECK(running->ok());
    CHECK(running->text == "...");
    CHECK(audit(false).alarms == 1);
    CHECK(gateway->ready(nullptr));
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
    for (int tick = 0; tick < 2 * 50 && engine->repairs.empty(); ++tick) pass(50ms);
    CHECK(audit(false).alarms == 1);
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

TEST_CASE_METHOD(HouseFixture, "between alarm and repair no running request gets another token; then it goes on",
                 "[actors][audit]") {
    start();
    hold_steps(true);
    const Seen untouched = ask("base", 6);
    step();
    const Seen told = ask("base", 6);
    engine->told_damage.insert(last_id());
    step();
    engine->fake_audit()->flip_bit(0, 0);
    audit(true);  // the executor is held, so nothing is repaired yet
    CHECK_FALSE(gateway->ready(nullptr));
    CHECK(engine->repairs.empty());
    const std::string before = untouched->text;
    const int steps = engine->steps;
    CHECK(ask("base")->code() == Errc::base_damaged);
    hold_steps(false);
    run();
    CHECK(engine->repairs.size() == 1);
    CHECK(told->code() == Errc::base_damaged);
    CHECK(untouched->ok());
    CHECK(untouched->text.size() == 6);
    CHECK(before.size() == 2);
    CHECK(engine->steps >= steps);
    CHECK(cache().leases.empty());
    CHECK_FALSE(scheduler().has_job());
}

TEST_CASE_METHOD(HouseFixture, "with a base beyond repair every running request ends", "[actors][audit]") {
    start();
    hold_steps(true);
    const Seen running = ask("base", 50);
    step();
    step();
    engine->fake_audit()->flip_bit(0, 0);
    engine->fake_audit()->source_changed = true;
    const std::string before = running->text;
    audit(true);
    hold_steps(false);
    run();
    CHECK(running->code() == Errc::base_damaged);
    CHECK(running->ended());
    CHECK(running->text == before);
    CHECK(engine->running() == 0);
    CHECK(cache().leases.empty());
}
