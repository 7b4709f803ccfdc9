#include "cached_house.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace attune;

TEST_CASE("whatever comes and goes, no block is lost, lent twice or read in another context", "[engine][schedule]") {
    std::mt19937 random(7);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 12; ++round) {
        CachedHouse house({.max_sequences = 4, .step_tokens = 5 + below(60)}, 14);
        const auto some_weights = [&](int prompt) -> std::vector<CacheWeights> {
            const int from = 1 + below(prompt);
            switch (below(5)) {
                case 0:
                    return under("base");
                case 1:
                    return under("module");
                case 2:
                    return {};
                default:
                    return {{0, "base"}, {from, "late at " + std::to_string(from)}};
            }
        };
        const auto some_tokens = [&](int count) {
            // Few different beginnings, then tokens of two kinds.
            std::vector<TokenId> tokens = token_run(count, below(2));
            for (int i = 16 * (1 + below(4)); i < count; ++i) tokens[static_cast<std::size_t>(i)] = below(2);
            return tokens;
        };
        int next = 1;
        for (int turn = 0; turn < 400; ++turn) {
            const int what = below(24);
            if (what < 5 && house.sequences.size() < 6) {
                const int count = 1 + below(90);
                house.add({.id = next++,
                           .priority = below(3),
                           .cache_weights = some_weights(count),
                           .tokens = some_tokens(count)});
            }
            std::vector<int> ids;
            for (const auto& [id, sequence] : house.sequences) ids.push_back(id);
            if (!ids.empty()) {
                const int id = ids[static_cast<std::size_t>(below(static_cast<int>(ids.size())))];
                Sequence& sequence = *house.sequences.at(id);
                if (what == 5 || sequence.length() > 150) {
                    house.finish(id);
                } else if (what == 6) {
                    SequenceModules modules;
                    modules.cache_weights = some_weights(sequence.prompt_tokens());
                    house.scheduler.requeue(sequence);
                    sequence.restart(modules);
                } else if (what == 7) {
                    const int most = static_cast<int>(sequence.generated().size());
                    if (most > 1) {
                        sequence.rollback(below(most));
                        sequence.append(below(3));
                    }
                } else if (what == 8) {
                    const std::vector<BlockId> held(sequence.blocks().blocks().begin(),
                                                    sequence.blocks().blocks().end());
                    house.finish(id);
                    house.pool.forget(held);
                } else if (what == 9 && below(4) == 0) {
                    house.pool.forget_all();
                    for (const auto& [other, running] : house.sequences) running->stop_caching();
                } else if (what == 10 && sequence.is_decoding()) {
                    // A fork under an id of its own; it is removed and given blocks back like any other.
                    const int fork = next++;
                    house.sequences[fork] = std::make_unique<Sequence>(sequence.fork(fork));
                    house.scheduler.add_fork(*house.sequences[fork]);
                }
            }
            house.step();
            int held = 0;
            for (int block = 0; block < house.pool.total_blocks(); ++block)
                held += house.pool.owners(BlockId{block}) > 0 ? 1 : 0;
            REQUIRE(held + house.pool.free_blocks() == house.pool.total_blocks());
            REQUIRE(house.pool.cached_blocks() <= house.pool.total_blocks());
            REQUIRE(house.wrong == 0);
        }
        while (!house.sequences.empty()) house.finish(house.sequences.begin()->first);
        CHECK(house.pool.free_blocks() == house.pool.total_blocks());
        CHECK(house.preempted > 0);
    }
}
