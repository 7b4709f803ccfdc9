// Who is admitted: turns of modules, sequences without room, prompts held for those that decode.

#include "engine/kv/block_size.hpp"
#include "scheduled_house.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace attune;

namespace {

constexpr SlotWeight kHot{SlotId{1}, 1.0F};
constexpr SlotWeight kRare{SlotId{2}, 1.0F};

struct House : ScheduledHouse {
    using ScheduledHouse::ScheduledHouse;

    /// Ids in the order in which they were admitted.
    std::vector<int> step(const Scheduler::PromptRows& prompt_rows = nullptr) {
        const StepPlan& plan = scheduler.plan(nullptr, prompt_rows);
        held = plan.prompts_held;
        rows = 0;
        wanted.clear();
        for (const Sequence* sequence : plan.wanted) wanted.push_back(id_of(*sequence));
        std::vector<int> began;
        for (const ScheduledRows& scheduled : plan.rows) {
            if (!scheduled.sequence->is_decoding() && scheduled.sequence->computed() == 0)
                began.push_back(id_of(*scheduled.sequence));
            rows += scheduled.rows;
            scheduled.sequence->advance(scheduled.rows);
            if (scheduled.sequence->pending() == 0) scheduled.sequence->append(7);
        }
        return began;
    }

    std::vector<int> wanted;
    int rows = 0;
    bool held = false;
};

using Ids = std::vector<int>;

}  // namespace

TEST_CASE("a rare module has its turn before the many that wait for a hot one", "[engine][schedule][fair]") {
    House house({.max_sequences = 3, .step_tokens = 64}, 64);
    for (int id = 1; id <= 8; ++id) house.add({.id = id, .prompt = 2, .slots = {kHot}});
    house.add({.id = 9, .prompt = 2, .slots = {kRare}});
    house.add({.id = 10, .prompt = 2});  // the base is one more
    house.step();
    CHECK(house.sequences.at(1)->has_blocks());
    CHECK(house.sequences.at(9)->has_blocks());
    CHECK(house.sequences.at(10)->has_blocks());
    CHECK_FALSE(house.sequences.at(2)->has_blocks());
    house.finish(9);
    CHECK(house.step() == Ids{2});  // nobody else waits
}

TEST_CASE("turns never go before a higher priority", "[engine][schedule][fair]") {
    House house({.max_sequences = 2, .step_tokens = 64}, 64);
    house.add({.id = 1, .prompt = 2, .slots = {kRare}});
    for (int id = 2; id <= 4; ++id) house.add({.id = id, .prompt = 2, .priority = 1, .slots = {kHot}});
    CHECK(house.step() == Ids{2, 3});
}

TEST_CASE("endless requests for one module let every other one begin", "[engine][schedule][fair]") {
    House house({.max_sequences = 2, .step_tokens = 64}, 64);
    int next = 100;
    for (; next < 120; ++next) house.add({.id = next, .prompt = 2, .slots = {kHot}});
    house.step();
    house.add({.id = 1000, .prompt = 2, .slots = {kRare}});
    house.finish(100);
    house.add({.id = next++, .prompt = 2, .slots = {kHot}});
    CHECK(house.step() == Ids{1000});
}

TEST_CASE("one without room is passed by those that fit, not for ever", "[engine][schedule][fair]") {
    House house({.max_sequences = 8, .step_tokens = 512}, 8);
    house.add({.id = 1, .prompt = 4 * kBlockTokens});
    house.step();
    house.add({.id = 2, .prompt = 5 * kBlockTokens});
    int small = 3;
    for (; small < 3 + Scheduler::kPatience; ++small) {
        house.add({.id = small, .prompt = 1});
        CHECK(house.step() == Ids{small});
        house.finish(small);
    }
    house.add({.id = small, .prompt = 1});
    CHECK(house.step().empty());  // it has been patient long enough
    house.finish(1);
    CHECK(house.step() == Ids{2, small});
}

TEST_CASE("a lower priority does not pass one without room", "[engine][schedule][fair]") {
    House house({.max_sequences = 8, .step_tokens = 512}, 8);
    house.add({.id = 1, .prompt = 4 * kBlockTokens});
    house.step();
    house.add({.id = 2, .prompt = 5 * kBlockTokens, .priority = 1});
    house.add({.id = 3, .prompt = 1});
    CHECK(house.step().empty());
}

TEST_CASE("a parked sequence is wanted when there is room for it, and holds up nobody", "[engine][schedule][fair]") {
    House house({.max_sequences = 4, .step_tokens = 512}, 8);
    Sequence& parked = house.add({.id = 1, .prompt = 40, .slots = {kHot}});
    parked.park();
    house.add({.id = 2, .prompt = 2});
    CHECK(house.step() == Ids{2});
    CHECK(house.wanted == Ids{1});
    SequenceModules modules;
    modules.list = {{kRare, 0}};
    parked.restart(modules);
    CHECK(house.step() == Ids{1});
    CHECK(house.wanted.empty());
}

TEST_CASE("a parked sequence without room is not wanted", "[engine][schedule][fair]") {
    House house({.max_sequences = 4, .step_tokens = 512}, 4);
    house.add({.id = 1, .prompt = 2 * kBlockTokens});
    house.step();
    house.add({.id = 2, .prompt = 3 * kBlockTokens, .slots = {kHot}}).park();
    CHECK(house.step().empty());
    CHECK(house.wanted.empty());
    house.finish(1);
    house.step();
    CHECK(house.wanted == Ids{2});
}

TEST_CASE("prompts get the rows that those who decode allow", "[engine][schedule][slo]") {
    House house({.max_sequences = 8, .step_tokens = 512}, 64);
    house.add({.id = 1, .prompt = 2});
    house.step();
    int asked_for = -1;
    const auto twenty = [&](int decode_rows) {
        asked_for = decode_rows;
        return 20;
    };
    house.add({.id = 2, .prompt = 30});
    house.add({.id = 3, .prompt = 30});
    CHECK(house.step(twenty) == Ids{2});
    CHECK(asked_for == 1);
    CHECK(house.rows == 21);
    CHECK(house.held);
    CHECK(house.step(twenty) == Ids{3});  // the rest of the second, then the third's first rows
    CHECK(house.rows == 21);
    house.step(twenty);
    CHECK(house.rows == 22);  // two decode
    house.step(twenty);
    CHECK_FALSE(house.held);
}
