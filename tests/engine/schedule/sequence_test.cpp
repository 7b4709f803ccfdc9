#include "engine/schedule/sequence.hpp"

#include "support/sequences.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// As a step does: reserve, then compute.
void compute(Sequence& sequence, int rows) {
    std::vector<BlockCopy> copies;
    REQUIRE(sequence.reserve(copies));
    sequence.advance(rows);
}

}  // namespace

TEST_CASE("a sequence decodes once its whole prompt is computed", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 5});
    CHECK(sequence->pending() == 5);
    compute(*sequence, 3);
    CHECK_FALSE(sequence->is_decoding());
    CHECK(sequence->pending() == 2);
    compute(*sequence, 2);
    CHECK(sequence->is_decoding());
    sequence->append(42);
    CHECK(sequence->pending() == 1);
    CHECK(sequence->generated().size() == 1);
    CHECK(sequence->prompt_tokens() == 5);
}

TEST_CASE("several tokens may be appended in one step", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 4});
    compute(*sequence, 4);
    sequence->append(token_run(3, 50));
    CHECK(sequence->pending() == 3);
    CHECK(sequence->length() == 7);
    compute(*sequence, 3);
    CHECK(sequence->computed() == 7);
}

TEST_CASE("a rollback drops tokens, their positions and the blocks only they needed", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 15});
    compute(*sequence, 15);
    sequence->append(token_run(3, 50));
    compute(*sequence, 3);
    CHECK(pool.free_blocks() == 6);
    sequence->rollback(2);
    CHECK(sequence->length() == 16);
    CHECK(sequence->computed() == 16);
    CHECK(pool.free_blocks() == 7);
    sequence->append(99);
    CHECK(sequence->tokens().back() == 99);
    CHECK(sequence->pending() == 1);
}

TEST_CASE("after a rollback without a new token the last row is computed again", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 3});
    compute(*sequence, 3);
    sequence->append(token_run(2, 50));
    compute(*sequence, 2);
    sequence->rollback(1);
    REQUIRE(sequence->pending() == 0);
    std::vector<BlockCopy> copies;
    REQUIRE(sequence->reserve(copies));
    CHECK(sequence->pending() == 1);
    CHECK(sequence->logits_from() == 3);
}

TEST_CASE("a rollback of tokens not yet computed leaves what is computed alone", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 3});
    compute(*sequence, 3);
    sequence->append(token_run(4, 50));
    sequence->rollback(2);
    CHECK(sequence->computed() == 3);
    CHECK(sequence->pending() == 2);
}

TEST_CASE("a restarted sequence has its generated tokens pending too and holds no block", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 20});
    compute(*sequence, 20);
    sequence->append(7);
    sequence->restart();
    CHECK(sequence->pending() == 21);
    CHECK(sequence->prompt_tokens() == 20);
    CHECK_FALSE(sequence->is_decoding());
    CHECK_FALSE(sequence->has_blocks());
    CHECK(pool.free_blocks() == 8);
}

TEST_CASE("a fork has the same tokens and blocks and its own choice", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 20, .slots = {{SlotId{2}, 0.5F}}});
    compute(*sequence, 20);
    Sequence fork = sequence->fork(1);
    CHECK(fork.choice() == 1);
    CHECK(fork.is_decoding());
    CHECK(fork.modules().list[0].slot == SlotWeight{SlotId{2}, 0.5F});
    CHECK(pool.free_blocks() == 6);
    CHECK(sequence->order() < fork.order());

    fork.append(1);
    std::vector<BlockCopy> copies;
    REQUIRE(fork.reserve(copies));
    CHECK(copies.size() == 1);
    CHECK(pool.free_blocks() == 5);
}

TEST_CASE("a fork at a block's end shares everything and copies nothing", "[engine][schedule]") {
    BlockPool pool(8);
    const auto sequence = make_sequence(pool, {.prompt = 32});
    compute(*sequence, 32);
    Sequence fork = sequence->fork(1);
    fork.append(1);
    std::vector<BlockCopy> copies;
    REQUIRE(fork.reserve(copies));
    CHECK(copies.empty());
}

TEST_CASE("modules of weight 0 are left out", "[engine][schedule]") {
    BlockPool pool(1);
    const auto sequence = make_sequence(pool, {.slots = {{SlotId{1}, 0.0F}, {SlotId{2}, -1.0F}}});
    REQUIRE(sequence->modules().list.size() == 1);
    CHECK(sequence->modules().list[0].slot.slot == SlotId{2});
}

TEST_CASE("order is by priority, then arrival, then choice", "[engine][schedule]") {
    const SequenceOrder early{0, 1, 0};
    CHECK(early < SequenceOrder{0, 2, 0});
    CHECK(SequenceOrder{5, 9, 0} < early);
    CHECK(early < SequenceOrder{-5, 0, 0});
    CHECK(early < SequenceOrder{0, 1, 1});
}

TEST_CASE("a sequence with a prefix starts as its fork, and copies only the partly filled block",
          "[engine][schedule]") {
    BlockPool pool(8);
    BlockTable prefix(pool);
    REQUIRE(prefix.grow_to(20));
    const auto sequence = make_sequence(pool, {.prompt = 14, .virtual_tokens = {20, &prefix}});
    CHECK(sequence->length() == 34);
    CHECK(sequence->missing_blocks() == 2);
    CHECK_FALSE(sequence->has_blocks());
    std::vector<BlockCopy> copies;
    REQUIRE(sequence->reserve(copies));
    CHECK(sequence->computed() == 20);
    CHECK(sequence->pending() == 14);
    REQUIRE(sequence->blocks().blocks().size() == 3);
    CHECK(sequence->blocks().blocks()[0] == prefix.blocks()[0]);
    CHECK(copies == std::vector<BlockCopy>{{prefix.blocks()[1], sequence->blocks().blocks()[1]}});
    CHECK(pool.free_blocks() == 4);

    sequence->advance(14);
    CHECK(sequence->is_decoding());
    sequence->append(7);
    CHECK(sequence->generated().size() == 1);
    CHECK(sequence->tokens().size() == 15);

    sequence->restart();
    CHECK(pool.free_blocks() == 6);
    copies.clear();
    REQUIRE(sequence->reserve(copies));
    CHECK(sequence->computed() == 20);
    CHECK(sequence->pending() == 15);
}

TEST_CASE("a sequence whose blocks run out behind its prefix holds none", "[engine][schedule]") {
    BlockPool pool(3);
    BlockTable prefix(pool);
    REQUIRE(prefix.grow_to(20));
    const auto sequence = make_sequence(pool, {.prompt = 14, .virtual_tokens = {20, &prefix}});
    std::vector<BlockCopy> copies;
    CHECK_FALSE(sequence->reserve(copies));
    CHECK(copies.empty());
    CHECK_FALSE(sequence->has_blocks());
    CHECK(pool.free_blocks() == 1);
    CHECK(pool.owners(prefix.blocks()[0]) == 1);
}

TEST_CASE("under other modules a sequence has their virtual tokens", "[engine][schedule]") {
    BlockPool pool(8);
    BlockTable prefix(pool);
    REQUIRE(prefix.grow_to(16));
    const auto sequence = make_sequence(pool, {.prompt = 3});
    compute(*sequence, 3);
    sequence->append(7);
    SequenceModules modules;
    modules.virtual_tokens = {16, &prefix};
    sequence->restart(modules);
    compute(*sequence, 4);
    CHECK(sequence->computed() == 20);
    CHECK(sequence->logits_from() == 19);
    modules.virtual_tokens = {6, nullptr};
    sequence->restart(modules);
    CHECK(sequence->pending() == 10);
    sequence->want_logits_from(1);
    CHECK(sequence->logits_from() == 7);
}

TEST_CASE("a fork of a sequence with a prefix starts again from it", "[engine][schedule]") {
    BlockPool pool(8);
    BlockTable prefix(pool);
    REQUIRE(prefix.grow_to(16));
    const auto sequence = make_sequence(pool, {.prompt = 3, .virtual_tokens = {16, &prefix}});
    compute(*sequence, 3);
    Sequence fork = sequence->fork(1);
    CHECK(fork.computed() == 19);
    fork.restart();
    std::vector<BlockCopy> copies;
    REQUIRE(fork.reserve(copies));
    CHECK(fork.pending() == 3);
    CHECK(pool.owners(prefix.blocks()[0]) == 3);
}
