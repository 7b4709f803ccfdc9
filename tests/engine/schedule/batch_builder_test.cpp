#include "engine/schedule/batch_builder.hpp"

#include "support/sequences.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

using Ints = std::vector<std::int32_t>;

ScheduledRows take(Sequence& sequence, int rows) {
    std::vector<BlockCopy> copies;
    REQUIRE(sequence.reserve(copies));
    return {&sequence, rows};
}

Batch built(std::vector<ScheduledRows> rows) {
    Batch batch;
    build_batch({std::move(rows), {}, {}}, batch);
    return batch;
}

const SlotWeight kSlot1{SlotId{1}, 1.0F};
const SlotWeight kSlot2{SlotId{2}, 0.5F};

}  // namespace

TEST_CASE("a batch lists each sequence's next tokens, positions and blocks", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 20});
    const auto b = make_sequence(pool, {.id = 2, .prompt = 3});
    take(*a, 0);
    a->advance(17);
    const Batch batch = built({take(*a, 2), take(*b, 3)});

    CHECK(batch.rows() == 5);
    CHECK(batch.tokens == Ints{117, 118, 200, 201, 202});
    CHECK(batch.positions == Ints{17, 18, 0, 1, 2});
    REQUIRE(batch.sequences.size() == 2);
    CHECK(batch.sequences[0].context == 17);
    CHECK(batch.sequences[0].blocks == 2);
    CHECK(batch.sequences[1].first_row == 2);
    CHECK(batch.sequences[1].rows == 3);
    CHECK(batch.sequences[1].context == 0);
    CHECK(batch.sequences[1].first_block == 2);
    CHECK(batch.sequences[1].blocks == 1);
    REQUIRE(batch.blocks.size() == 3);
    CHECK(batch.blocks[0] == a->blocks().blocks()[0]);
    CHECK(batch.blocks[2] == b->blocks().blocks()[0]);
}

TEST_CASE("only the last token's row gives logits, and a chunk before it gives none", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 6});
    CHECK(built({take(*a, 4)}).logit_rows.empty());
    a->advance(4);
    CHECK(built({take(*a, 2)}).logit_rows == Ints{1});
}

TEST_CASE("a sequence may ask for the logits of several rows", "[engine][schedule]") {
    BlockPool pool(8);
    const auto whole = make_sequence(pool, {.id = 1, .prompt = 3});
    whole->want_logits_from(0);
    const auto guesses = make_sequence(pool, {.id = 2, .prompt = 4});
    take(*guesses, 4);
    guesses->advance(4);
    guesses->append(token_run(3, 9));
    guesses->want_logits_from(5);
    const auto none = make_sequence(pool, {.id = 3, .prompt = 2});
    none->want_logits_from(2);
    CHECK(built({take(*whole, 3), take(*guesses, 3), take(*none, 2)}).logit_rows == Ints{0, 1, 2, 4, 5});
}

TEST_CASE("equal slot lists side by side are one segment", "[engine][schedule]") {
    BlockPool pool(8);
    const auto base = make_sequence(pool, {.id = 1, .prompt = 2});
    const auto base_too = make_sequence(pool, {.id = 2, .prompt = 1});
    const auto one = make_sequence(pool, {.id = 3, .prompt = 3, .slots = {kSlot1}});
    const auto both = make_sequence(pool, {.id = 4, .prompt = 1, .slots = {kSlot1, kSlot2}});
    const auto both_too = make_sequence(pool, {.id = 5, .prompt = 1, .slots = {kSlot1, kSlot2}});
    const Batch batch = built({take(*base, 2), take(*base_too, 1), take(*one, 3), take(*both, 1), take(*both_too, 1)});
    CHECK(batch.segments() == 3);
    CHECK(batch.segment_rows == Ints{0, 3, 6, 8});
    CHECK(batch.segment_offsets == Ints{0, 0, 1, 3});
    CHECK(batch.segment_slots == std::vector<SlotWeight>{kSlot1, kSlot1, kSlot2});
}

TEST_CASE("the same slot with another weight is another segment", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 1, .slots = {{SlotId{1}, 1.0F}}});
    const auto b = make_sequence(pool, {.id = 2, .prompt = 1, .slots = {{SlotId{1}, 0.5F}}});
    CHECK(built({take(*a, 1), take(*b, 1)}).segments() == 2);
}

TEST_CASE("a segment starts inside the sequence where its modules start", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.prompt = 6, .slots = {kSlot1}, .modules_from = 4});
    const Batch whole = built({take(*a, 6)});
    CHECK(whole.segment_rows == Ints{0, 4, 6});
    CHECK(whole.segment_offsets == Ints{0, 0, 1});

    SECTION("a chunk before the start is base") {
        const Batch chunk = built({take(*a, 3)});
        CHECK(chunk.segment_rows == Ints{0, 3});
        CHECK(chunk.segment_slots.empty());
    }
    SECTION("a chunk across it is cut, one after it is not") {
        a->advance(3);
        CHECK(built({take(*a, 2)}).segment_rows == Ints{0, 1, 2});
        a->advance(2);
        const Batch after = built({take(*a, 1)});
        CHECK(after.segment_rows == Ints{0, 1});
        CHECK(after.segment_slots == std::vector<SlotWeight>{kSlot1});
    }
}

TEST_CASE("each module begins at a position of its own", "[engine][schedule]") {
    BlockPool pool(8);
    Sequence::Start start;
    start.prompt = token_run(8);
    start.modules.list = {{kSlot1, 5}, {kSlot2, 0}, {{SlotId{3}, 2.0F}, 2}};
    Sequence sequence(std::move(start), pool);
    const Batch batch = built({take(sequence, 8)});
    CHECK(batch.segment_rows == Ints{0, 2, 5, 8});
    CHECK(batch.segment_offsets == Ints{0, 1, 3, 6});
    const SlotWeight slot3{SlotId{3}, 2.0F};
    CHECK(batch.segment_slots == std::vector<SlotWeight>{kSlot2, kSlot2, slot3, kSlot1, kSlot2, slot3});
    sequence.advance(5);
    const Batch rest = built({take(sequence, 2)});
    CHECK(rest.segment_rows == Ints{0, 2});
    CHECK(rest.segment_slots == std::vector<SlotWeight>{kSlot1, kSlot2, slot3});
}

TEST_CASE("virtual tokens of a soft prompt are rows before the prompt", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 2, .slots = {kSlot1}, .virtual_tokens = {3, nullptr}});
    const Batch batch = built({take(*a, 5)});
    CHECK(batch.tokens == Ints{-1, -2, -3, 100, 101});
    CHECK(batch.positions == Ints{0, 1, 2, 3, 4});
    CHECK(batch.logit_rows == Ints{4});
    CHECK(batch.segment_rows == Ints{0, 5});
}

TEST_CASE("a prefix has no rows, and real tokens come behind it", "[engine][schedule]") {
    BlockPool pool(8);
    BlockTable prefix(pool);
    REQUIRE(prefix.grow_to(5));
    const auto a = make_sequence(pool, {.id = 1, .prompt = 2, .slots = {kSlot1}, .virtual_tokens = {5, &prefix}});
    a->want_logits_from(0);
    const Batch batch = built({take(*a, 2)});
    CHECK(batch.tokens == Ints{100, 101});
    CHECK(batch.positions == Ints{5, 6});
    CHECK(batch.sequences[0].context == 5);
    CHECK(batch.logit_rows == Ints{0, 1});
}

TEST_CASE("the same modules combined in another way are another segment", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 1, .slots = {kSlot1, kSlot2}});
    const auto b = make_sequence(pool, {.id = 2, .slots = {kSlot1, kSlot2}, .combine = Combine::parallel});
    const auto c = make_sequence(pool, {.id = 3, .slots = {kSlot1, kSlot2}, .combine = Combine::parallel});
    const Batch batch = built({take(*a, 1), take(*b, 1), take(*c, 1)});
    CHECK(batch.segment_rows == Ints{0, 1, 3});
    CHECK(batch.segment_combine == std::vector<Combine>{Combine::sequence, Combine::parallel});
}

TEST_CASE("a batch built again holds nothing of the one before", "[engine][schedule]") {
    BlockPool pool(8);
    const auto a = make_sequence(pool, {.id = 1, .prompt = 5, .slots = {kSlot1}});
    const auto b = make_sequence(pool, {.id = 2, .prompt = 1});
    Batch batch;
    build_batch({{take(*a, 5)}, {}, {}}, batch);
    build_batch({{take(*b, 1)}, {}, {}}, batch);
    CHECK(batch.rows() == 1);
    CHECK(batch.sequences.size() == 1);
    CHECK(batch.blocks.size() == 1);
    CHECK(batch.segment_rows == Ints{0, 1});
    CHECK(batch.segment_slots.empty());
    CHECK(batch.logit_rows == Ints{0});
    CHECK(batch.segment_combine.size() == 1);
    build_batch({}, batch);
    CHECK(batch.rows() == 0);
    CHECK(batch.segments() == 0);
}
