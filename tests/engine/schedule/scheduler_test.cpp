#include "engine/schedule/scheduler.hpp"

#include "engine/kv/block_size.hpp"
#include "scheduled_house.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace attune;

namespace {

struct House : ScheduledHouse {
    using ScheduledHouse::ScheduledHouse;

    /// Plans, checks what must hold of every plan, and does what a step would do with it.
    Chosen step(const Scheduler::MayRun& may_run = nullptr) {
        const StepPlan& plan = scheduler.plan(may_run);
        Chosen chosen;
        for (const ScheduledRows& rows : plan.rows) {
            CHECK(rows.rows > 0);
            const int needed = BlockTable::blocks_for(rows.sequence->computed() + rows.rows);
            CHECK(static_cast<int>(rows.sequence->blocks().blocks().size()) >= needed);
            chosen.emplace_back(id_of(*rows.sequence), rows.rows);
        }
        preempted.clear();
        for (const Sequence* sequence : plan.preempted) preempted.insert(id_of(*sequence));
        copies = plan.copies;
        for (const ScheduledRows& rows : plan.rows) {
            rows.sequence->advance(rows.rows);
            if (rows.sequence->pending() == 0) rows.sequence->append(7);
        }
        return chosen;
    }

    std::set<int> preempted;
    std::vector<BlockCopy> copies;
};

}  // namespace

TEST_CASE("nothing to do gives an empty plan", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 8}, 4);
    CHECK(house.step().empty());
}

TEST_CASE("a prompt is read in chunks of the step's tokens, then decoded row by row", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 4}, 8);
    house.add({.id = 1, .prompt = 10});
    CHECK(house.step() == Chosen{{1, 4}});
    CHECK(house.step() == Chosen{{1, 4}});
    CHECK(house.step() == Chosen{{1, 2}});
    CHECK(house.step() == Chosen{{1, 1}});
}

TEST_CASE("decode rows come first and prompts share the rest", "[engine][schedule]") {
    House house({.max_sequences = 8, .step_tokens = 8}, 16);
    house.add({.id = 1, .prompt = 2});
    house.add({.id = 2, .prompt = 3});
    CHECK(house.step() == Chosen{{1, 2}, {2, 3}});
    house.add({.id = 3, .prompt = 9});
    house.add({.id = 4, .prompt = 2});
    CHECK(house.step() == Chosen{{1, 1}, {2, 1}, {3, 6}});
    CHECK(house.step() == Chosen{{1, 1}, {2, 1}, {3, 3}, {4, 2}});
    CHECK(house.step() == Chosen{{1, 1}, {2, 1}, {3, 1}, {4, 1}});
}

TEST_CASE("no plan holds more rows than step_tokens or more sequences than max_sequences", "[engine][schedule]") {
    House house({.max_sequences = 3, .step_tokens = 5}, 64);
    for (int id = 1; id <= 6; ++id) house.add({.id = id, .prompt = id});
    for (int i = 0; i < 10; ++i) {
        const Chosen chosen = house.step();
        CHECK(chosen.size() <= 3);
        int rows = 0;
        for (const auto& [id, count] : chosen) rows += count;
        CHECK(rows <= 5);
    }
    CHECK(house.scheduler.running() == 3);
    CHECK(house.scheduler.waiting() == 3);
}

TEST_CASE("who leaves makes room for the next at the very next step", "[engine][schedule]") {
    House house({.max_sequences = 1, .step_tokens = 8}, 8);
    house.add({.id = 1, .prompt = 2});
    house.add({.id = 2, .prompt = 2});
    CHECK(house.step() == Chosen{{1, 2}});
    house.finish(1);
    CHECK(house.step() == Chosen{{2, 2}});
}

TEST_CASE("higher priority is admitted first, then the earlier arrival", "[engine][schedule]") {
    House house({.max_sequences = 2, .step_tokens = 8}, 8);
    house.add({.id = 1, .prompt = 1, .priority = -1});
    house.add({.id = 2, .prompt = 1});
    house.add({.id = 3, .prompt = 1, .priority = 5});
    house.add({.id = 4, .prompt = 1});
    CHECK(house.step() == Chosen{{3, 1}, {2, 1}});
    house.finish(3);
    house.finish(2);
    CHECK(house.step() == Chosen{{4, 1}, {1, 1}});
}

TEST_CASE("a prompt is admitted only when blocks for all of it are free", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 4);
    house.add({.id = 1, .prompt = 33});
    house.add({.id = 2, .prompt = 20});
    house.add({.id = 3, .prompt = 1});
    // 3 of 4 blocks are taken, and one is kept for each that runs.
    CHECK(house.step() == Chosen{{1, 33}});
    CHECK(house.step() == Chosen{{1, 1}});
    house.finish(1);
    CHECK(house.step() == Chosen{{2, 20}, {3, 1}});
}

TEST_CASE("when blocks run out the youngest gives its own back and is recomputed whole", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 4);
    house.add({.id = 1, .prompt = 15});
    house.add({.id = 2, .prompt = 15});
    CHECK(house.step() == Chosen{{1, 15}, {2, 15}});
    for (int i = 0; i < 17; ++i) CHECK(house.step() == Chosen{{1, 1}, {2, 1}});
    // Both hold two full blocks; the first needs a third.
    CHECK(house.step() == Chosen{{1, 1}});
    CHECK(house.preempted == std::set<int>{2});
    CHECK_FALSE(house.sequences[2]->has_blocks());
    CHECK(house.sequences[2]->pending() == 33);
    house.finish(1);
    CHECK(house.step() == Chosen{{2, 33}});
    CHECK(house.step() == Chosen{{2, 1}});
}

TEST_CASE("the youngest that needs a block itself is the one that waits", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 4);
    house.add({.id = 1, .prompt = 5});
    house.add({.id = 2, .prompt = 31});
    CHECK(house.step() == Chosen{{1, 5}, {2, 31}});
    house.add({.id = 3, .prompt = 1, .priority = 1});
    CHECK(house.step() == Chosen{{1, 1}, {2, 1}});  // one block is left, and one is kept for each that runs
    house.sequences[1]->append(token_run(12, 1));   // takes the last block
    CHECK(house.step() == Chosen{{1, 13}});
    CHECK(house.preempted == std::set<int>{2});
}

TEST_CASE("a lower priority is preempted before a later arrival", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 4);
    house.add({.id = 1, .prompt = 17});
    CHECK(house.step() == Chosen{{1, 17}});
    Sequence& urgent = house.add({.id = 2, .prompt = 14, .priority = 1});
    CHECK(house.step() == Chosen{{1, 1}, {2, 14}});
    urgent.append(token_run(25, 1));
    CHECK(house.step() == Chosen{{2, 26}});
    CHECK(house.preempted == std::set<int>{1});
}

TEST_CASE("equal slot lists lie side by side, the base first", "[engine][schedule]") {
    House house({.max_sequences = 8, .step_tokens = 100}, 16);
    const SlotWeight one{SlotId{1}, 1.0F};
    const SlotWeight two{SlotId{2}, 1.0F};
    house.add({.id = 1, .prompt = 1, .slots = {two}});
    house.add({.id = 2, .prompt = 1, .slots = {one}});
    house.add({.id = 3, .prompt = 1});
    house.add({.id = 4, .prompt = 1, .slots = {two}});
    house.add({.id = 5, .prompt = 1, .slots = {one, two}});
    house.add({.id = 6, .prompt = 1});
    CHECK(house.step() == Chosen{{3, 1}, {6, 1}, {2, 1}, {5, 1}, {1, 1}, {4, 1}});
}

TEST_CASE("a fork runs beside its origin and copies the partial block on its first write", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 8);
    Sequence& origin = house.add({.id = 1, .prompt = 20});
    CHECK(house.step() == Chosen{{1, 20}});
    origin.rollback(1);
    Sequence fork = origin.fork(1);
    origin.append(5);
    fork.append(6);
    house.scheduler.add_fork(fork);
    CHECK(house.step() == Chosen{{1, 1}, {1, 1}});
    CHECK(house.copies.size() == 1);
    CHECK(house.pool.free_blocks() == 5);
    CHECK(house.step() == Chosen{{1, 1}, {1, 1}});
    CHECK(house.copies.empty());
    house.scheduler.remove(fork);
}

TEST_CASE("a fork beyond max_sequences waits with its blocks", "[engine][schedule]") {
    House house({.max_sequences = 1, .step_tokens = 100}, 8);
    Sequence& origin = house.add({.id = 1, .prompt = 20});
    CHECK(house.step() == Chosen{{1, 20}});
    {
        Sequence fork = origin.fork(1);
        house.scheduler.add_fork(fork);
        CHECK(house.step() == Chosen{{1, 1}});
        CHECK(fork.has_blocks());
        house.finish(1);
        CHECK(house.step() == Chosen{{1, 1}});
        CHECK(house.copies.empty());  // the origin left, the block is its own
        house.scheduler.remove(fork);
    }
    CHECK(house.pool.free_blocks() == 8);
}

TEST_CASE("blocks of forks that wait go to whoever is before them when nobody runs", "[engine][schedule]") {
    House house({.max_sequences = 1, .step_tokens = 100}, 3);
    Sequence& origin = house.add({.id = 2, .prompt = 20});
    CHECK(house.step() == Chosen{{2, 20}});
    Sequence fork = origin.fork(1);
    house.scheduler.add_fork(fork);
    house.finish(2);
    house.add({.id = 1, .prompt = 40});
    CHECK(house.step() == Chosen{{1, 40}});
    CHECK_FALSE(fork.has_blocks());
    CHECK(fork.pending() == 21);
    house.finish(1);
    CHECK(house.step() == Chosen{{2, 21}});
    house.scheduler.remove(fork);
}

TEST_CASE("a fork that finds no block for its copy gives its shared blocks back", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 100}, 2);
    Sequence& origin = house.add({.id = 1, .prompt = 20});
    CHECK(house.step() == Chosen{{1, 20}});
    Sequence fork = origin.fork(1);
    house.scheduler.add_fork(fork);
    CHECK(house.step() == Chosen{{1, 1}});
    CHECK(house.preempted == std::set<int>{1});
    CHECK_FALSE(fork.has_blocks());
    CHECK(house.copies.empty());
    CHECK(origin.has_blocks());
    house.finish(1);
    CHECK(house.step() == Chosen{{1, 21}});
    house.scheduler.remove(fork);
}

TEST_CASE("a sequence under other modules is read again from its first token at its old place", "[engine][schedule]") {
    House house({.max_sequences = 2, .step_tokens = 100}, 8);
    Sequence& first = house.add({.id = 1, .prompt = 4});
    house.add({.id = 2, .prompt = 4});
    house.add({.id = 3, .prompt = 4});
    CHECK(house.step() == Chosen{{1, 4}, {2, 4}});
    house.scheduler.requeue(first);
    SequenceModules modules;
    modules.list = {{{SlotId{9}, 1.0F}, 0}};
    first.restart(modules);
    CHECK(house.step() == Chosen{{2, 1}, {1, 5}});
}

TEST_CASE("after a failed step the sequences without rows in it are recomputed", "[engine][schedule]") {
    House house({.max_sequences = 4, .step_tokens = 4}, 16);
    house.add({.id = 1, .prompt = 2});
    Sequence& second = house.add({.id = 2, .prompt = 2});
    CHECK(house.step() == Chosen{{1, 2}, {2, 2}});
    house.sequences[1]->append(token_run(3, 1));
    REQUIRE(house.scheduler.plan().rows.size() == 1);
    house.scheduler.distrust_blocks();
    CHECK(house.sequences[1]->has_blocks());
    CHECK_FALSE(second.has_blocks());
    CHECK(second.pending() == 3);
}

TEST_CASE("a full pool never stops the house: every sequence ends", "[engine][schedule]") {
    // Each needs up to 4 of 5 blocks, so they keep pushing each other out.
    House house({.max_sequences = 4, .step_tokens = 7}, 5);
    std::map<int, int> wanted;
    for (int id = 1; id <= 6; ++id) {
        house.add({.id = id, .prompt = 10 + 3 * id, .priority = id % 3});
        wanted[id] = 64;
    }
    int steps = 0;
    int preemptions = 0;
    while (!house.sequences.empty() && steps++ < 5000) {
        house.step();
        preemptions += static_cast<int>(house.preempted.size());
        for (int id = 1; id <= 6; ++id) {
            const auto found = house.sequences.find(id);
            if (found != house.sequences.end() && found->second->length() >= wanted[id]) house.finish(id);
        }
    }
    CHECK(house.sequences.empty());
    CHECK(preemptions > 0);
    CHECK(house.pool.free_blocks() == 5);
}

TEST_CASE("sequences that may not run keep their places and blocks, and hold up nobody behind them",
          "[engine][schedule][merge]") {
    House house({.max_sequences = 4, .step_tokens = 64}, 16);
    house.add({.id = 1, .prompt = 3});
    CHECK(house.step() == Chosen{{1, 3}});
    house.add({.id = 2, .prompt = 4});
    house.add({.id = 3, .prompt = 5});
    const auto only = [](int id) { return [id](const Sequence& sequence) { return id_of(sequence) == id; }; };
    CHECK(house.step(only(3)) == Chosen{{3, 5}});
    CHECK(house.step(only(3)) == Chosen{{3, 1}});
    CHECK(house.sequences.at(1)->has_blocks());
    CHECK_FALSE(house.sequences.at(2)->has_blocks());
    CHECK(house.step(only(4)).empty());
    CHECK(house.step() == Chosen{{1, 1}, {3, 1}, {2, 4}});
    CHECK(house.preempted.empty());
}
