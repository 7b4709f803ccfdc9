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
    CHECK(fork.slots()[0] == SlotWeight{SlotId{2}, 0.5F});
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
    REQUIRE(sequence->slots().size() == 1);
    CHECK(sequence->slots()[0].slot == SlotId{2});
}

TEST_CASE("order is by priority, then arrival, then choice", "[engine][schedule]") {
    const SequenceOrder early{0, 1, 0};
    CHECK(early < SequenceOrder{0, 2, 0});
    CHECK(SequenceOrder{5, 9, 0} < early);
    CHECK(early < SequenceOrder{-5, 0, 0});
    CHECK(early < SequenceOrder{0, 1, 1});
}
