// Cached blocks in the life of sequences.

#include "cached_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

TEST_CASE("a prompt that was read before is computed from its last full block on, at least one token of it",
          "[engine][schedule]") {
    struct Row {
        int before, now, computed;
    };
    for (const Row& row : {Row{40, 40, 8}, Row{40, 33, 1}, Row{40, 32, 16}, Row{40, 17, 1}, Row{40, 16, 16},
                           Row{15, 15, 15}, Row{16, 40, 24}, Row{40, 100, 68}, Row{1, 1, 1}}) {
        INFO(row.before << " tokens, then " << row.now);
        CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
        house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(row.before)});
        house.step();
        house.finish(1);
        Sequence& again = house.add({.id = 2, .cache_weights = under("w"), .tokens = token_run(row.now)});
        CHECK(house.step() == Chosen{{2, row.computed}});
        CHECK(again.cached_tokens() == row.now - row.computed);
        CHECK(house.wrong == 0);
    }
}

TEST_CASE("other weights or no weights named find nothing", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(40)});
    house.step();
    house.finish(1);
    house.add({.id = 2, .cache_weights = under("other"), .tokens = token_run(40)});
    house.add({.id = 3, .cache_weights = {}, .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{2, 40}, {3, 40}});
    house.finish(3);
    house.add({.id = 4, .cache_weights = {}, .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{2, 1}, {4, 40}});
}

TEST_CASE("blocks that end before the weights change are shared with whoever has only the first",
          "[engine][schedule]") {
    for (const auto& [from, computed] : std::map<int, int>{{5, 60}, {16, 44}, {31, 44}, {32, 28}, {47, 28}, {48, 12}}) {
        INFO("from position " << from);
        CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
        house.add({.id = 1, .cache_weights = under("base"), .tokens = token_run(60)});
        house.step();
        house.finish(1);
        const std::vector<CacheWeights> late{{0, "base"}, {from, "late at " + std::to_string(from)}};
        house.add({.id = 2, .cache_weights = late, .tokens = token_run(60)});
        CHECK(house.step() == Chosen{{2, computed}});
        house.finish(2);
        house.add({.id = 3, .cache_weights = late, .tokens = token_run(60)});
        CHECK(house.step() == Chosen{{3, 12}});
        house.finish(3);
        house.add({.id = 4, .cache_weights = under("base"), .tokens = token_run(60)});
        CHECK(house.step() == Chosen{{4, 12}});
        CHECK(house.wrong == 0);
    }
}

TEST_CASE("an answer is cached with its prompt, so the next turn begins behind it", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    const Sequence& first = house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(20)});
    for (int i = 0; i < 30; ++i) house.step();
    std::vector<TokenId> next(first.tokens().begin(), first.tokens().end());
    next.resize(60, 5);
    house.finish(1);
    house.add({.id = 2, .cache_weights = under("w"), .tokens = next});
    CHECK(house.step() == Chosen{{2, 12}});
    CHECK(house.wrong == 0);
}

TEST_CASE("positions whose logits are wanted are computed, and fill the cache", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(40)});
    house.step();
    house.finish(1);
    house.add({.id = 2, .cache_weights = under("w"), .tokens = token_run(60)}).want_logits_from(0);
    CHECK(house.step() == Chosen{{2, 60}});
    house.finish(2);
    house.add({.id = 3, .cache_weights = under("w"), .tokens = token_run(60)}).want_logits_from(20);
    CHECK(house.step() == Chosen{{3, 44}});
    CHECK(house.wrong == 0);
}

TEST_CASE("a prompt in the middle of being read takes what another one finished meanwhile", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 50}, 32);
    house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(90)});
    const Sequence& second = house.add({.id = 2, .cache_weights = under("w"), .tokens = token_run(90)});
    CHECK(house.step() == Chosen{{1, 50}});
    CHECK(house.step() == Chosen{{1, 40}, {2, 10}});
    CHECK(house.step() == Chosen{{1, 1}, {2, 10}});
    CHECK(second.cached_tokens() == 70);
    // Both hold the prompt's five full blocks once, and one more each.
    CHECK(house.pool.free_blocks() == 32 - 7);
    CHECK(house.wrong == 0);
}

TEST_CASE("prompts read side by side keep one copy of their blocks", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 32);
    for (int id = 1; id <= 4; ++id) house.add({.id = id, .cache_weights = under("w"), .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{1, 40}, {2, 40}, {3, 40}, {4, 40}});
    CHECK(house.pool.cached_blocks() == 2);
    CHECK(house.pool.free_blocks() == 32 - 2 - 4);
    house.step();
    CHECK(house.wrong == 0);
}

TEST_CASE("room is counted with what is cached: held blocks are not needed twice, resting ones are free",
          "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 6);
    const Sequence& first = house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(60)});
    house.step();
    CHECK(first.missing_blocks() == 0);
    // 4 of 6 blocks are held, one is kept for the one that runs: room for one more, and three are shared.
    const Sequence& second = house.add({.id = 2, .cache_weights = under("w"), .tokens = token_run(60)});
    CHECK(second.missing_blocks() == 1);
    CHECK(house.step() == Chosen{{1, 1}, {2, 12}});
    house.finish(1);
    house.finish(2);
    CHECK(house.pool.free_blocks() == 6);
    Sequence& third = house.add({.id = 3, .cache_weights = under("w"), .tokens = token_run(60)});
    CHECK(third.missing_blocks() == 4);
    CHECK(house.step() == Chosen{{3, 12}});
    house.add({.id = 4, .cache_weights = under("other"), .tokens = token_run(96)});
    house.finish(3);
    CHECK(house.step() == Chosen{{4, 96}});
    CHECK(house.wrong == 0);
}

TEST_CASE("a preempted sequence finds its own blocks again", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 8);
    house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(40)});
    house.add({.id = 2, .cache_weights = under("w"), .tokens = token_run(40, 500)});
    house.step();
    Sequence& second = *house.sequences.at(2);
    house.scheduler.requeue(second);
    CHECK_FALSE(second.has_blocks());
    CHECK(house.step() == Chosen{{1, 1}, {2, 9}});
    CHECK(second.is_decoding());
    CHECK(house.wrong == 0);
}

TEST_CASE("under other modules a sequence looks under their key and leaves its blocks under the old one",
          "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    house.add({.id = 1, .cache_weights = under("module"), .tokens = token_run(40)});
    house.step();
    house.finish(1);
    Sequence& upgraded = house.add({.id = 2, .cache_weights = under("base"), .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{2, 40}});
    house.scheduler.requeue(upgraded);
    SequenceModules modules;
    modules.cache_weights = under("module");
    upgraded.restart(modules);
    CHECK(house.step() == Chosen{{2, 9}});
    house.add({.id = 3, .cache_weights = under("base"), .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{2, 1}, {3, 8}});
    CHECK(house.wrong == 0);
}

TEST_CASE("behind a prefix caching begins where its full blocks end", "[engine][schedule]") {
    for (const auto& [prefix_tokens, computed] : std::map<int, int>{{5, 13}, {16, 8}, {20, 12}}) {
        INFO("a prefix of " << prefix_tokens);
        CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
        BlockTable prefix(house.pool);
        REQUIRE(prefix.grow_to(prefix_tokens));
        const SequenceSpec spec{.virtual_tokens = {prefix_tokens, &prefix}, .cache_weights = under("prefix")};
        SequenceSpec first = spec;
        first.tokens = token_run(40);
        house.add(std::move(first));
        // What the module wrote there.
        const auto contents = contents_of(*house.sequences.at(1), prefix_tokens);
        for (int position = 0; position < prefix_tokens; ++position) {
            const auto block =
                static_cast<std::size_t>(value_of(prefix.blocks()[static_cast<std::size_t>(position / kBlockTokens)]));
            house.kv[block][static_cast<std::size_t>(position % kBlockTokens)] =
                contents[static_cast<std::size_t>(position)];
        }
        CHECK(house.step() == Chosen{{1, 40}});
        SequenceSpec second = spec;
        second.id = 2;
        second.tokens = token_run(40);
        const Sequence& again = house.add(std::move(second));
        CHECK(house.step() == Chosen{{1, 1}, {2, computed}});
        CHECK(again.cached_tokens() == 40 - computed);
        house.finish(1);
        house.finish(2);
        CHECK(house.wrong == 0);
    }
}

TEST_CASE("a soft prompt's positions are cached like tokens and not counted as such", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    house.add({.id = 1, .virtual_tokens = {20, nullptr}, .cache_weights = under("w"), .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{1, 60}});
    const Sequence& again =
        house.add({.id = 2, .virtual_tokens = {20, nullptr}, .cache_weights = under("w"), .tokens = token_run(40)});
    CHECK(house.step() == Chosen{{1, 1}, {2, 12}});
    CHECK(again.cached_tokens() == 28);
    CHECK(house.wrong == 0);
}

TEST_CASE("a rollback into a cached block writes into a copy of it", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 200}, 16);
    Sequence& sequence = house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(20)});
    for (int i = 0; i < 14; ++i) house.step();
    CHECK(house.pool.cached_blocks() == 2);
    sequence.rollback(5);
    sequence.append(token_run(4, 900));
    house.step();
    CHECK(house.pool.cached_blocks() == 3);
    sequence.rollback(1);
    house.step();
    CHECK(house.wrong == 0);
}

TEST_CASE("what runs while everything is forgotten is not shared until it starts again", "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 30}, 16);
    Sequence& sequence = house.add({.id = 1, .cache_weights = under("w"), .tokens = token_run(40)});
    house.step();
    house.pool.forget_all();
    sequence.stop_caching();
    house.step();
    CHECK(house.pool.cached_blocks() == 0);
    house.scheduler.requeue(sequence);
    sequence.stop_caching();  // it holds nothing of before
    house.step();
    house.step();
    CHECK(house.pool.cached_blocks() == 2);
    CHECK(house.wrong == 0);
}

TEST_CASE("blocks are shared within one apply mode, and those begun in one and gone on in another by nobody",
          "[engine][schedule]") {
    CachedHouse house({.max_sequences = 4, .step_tokens = 20}, 16);
    const auto add = [&](int id, ApplyMode mode) {
        Sequence& added = house.add({.id = id, .cache_weights = under("w"), .tokens = token_run(40)});
        added.set_apply(mode);
        return &added;
    };
    add(1, ApplyMode::batched);
    for (int i = 0; i < 2; ++i) house.step();
    house.finish(1);
    Sequence* const mixed = add(2, ApplyMode::merged);
    CHECK(house.step() == Chosen{{2, 20}});
    mixed->set_apply(ApplyMode::batched);
    CHECK(house.step() == Chosen{{2, 20}});
    CHECK(house.pool.cached_blocks() == 2);
    house.scheduler.requeue(*mixed);
    mixed->set_apply(ApplyMode::merged);
    CHECK(house.step() == Chosen{{2, 20}});
    house.step();
    house.step();
    CHECK(house.pool.cached_blocks() == 4);
    house.finish(2);
    for (const ApplyMode mode : {ApplyMode::merged, ApplyMode::batched}) {
        add(3, mode);
        CHECK(house.step() == Chosen{{3, 8}});
        house.finish(3);
    }
    CHECK(house.wrong == 0);
}
