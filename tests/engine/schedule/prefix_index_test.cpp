#include "engine/kv/block_pool.hpp"
#include "support/sequences.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// Blocks 0, 1, ... of a pool, held as a sequence would.
struct Cached {
    explicit Cached(int blocks) : pool(blocks) {}

    std::optional<BlockId> find(std::optional<BlockId> parent, std::string_view weights, TokenId first) const {
        const auto tokens = token_run(kBlockTokens, first);
        return pool.find_cached({parent, weights, tokens});
    }
    std::optional<BlockId> cache(std::optional<BlockId> parent, std::string_view weights, TokenId first,
                                 BlockId block) {
        const auto tokens = token_run(kBlockTokens, first);
        return pool.cache({parent, weights, tokens}, block);
    }
    /// A chain of fresh blocks with tokens first, first + 16, ...
    std::vector<BlockId> chain(int blocks, TokenId first, std::string_view weights = "w") {
        std::vector<BlockId> made;
        for (int i = 0; i < blocks; ++i) {
            const BlockId block = *pool.allocate();
            const auto parent = made.empty() ? std::nullopt : std::optional(made.back());
            REQUIRE(cache(parent, weights, first + i * kBlockTokens, block) == block);
            made.push_back(block);
        }
        return made;
    }
    /// As a table does: the last block first.
    void release(const std::vector<BlockId>& blocks) {
        for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) pool.release(*block);
    }

    BlockPool pool;
};

}  // namespace

TEST_CASE("a cached block is found by its parent, its weights and all its tokens, and by nothing less",
          "[engine][kv]") {
    Cached house(4);
    const auto blocks = house.chain(2, 0);
    CHECK(house.find(std::nullopt, "w", 0) == blocks[0]);
    CHECK(house.find(blocks[0], "w", 16) == blocks[1]);
    CHECK_FALSE(house.find(std::nullopt, "other", 0));
    CHECK_FALSE(house.find(blocks[0], "other", 16));
    CHECK_FALSE(house.find(std::nullopt, "w", 16));
    CHECK_FALSE(house.find(blocks[1], "w", 16));
    for (int i = 0; i < kBlockTokens; ++i) {
        auto tokens = token_run(kBlockTokens);
        tokens[static_cast<std::size_t>(i)] = 999;
        CHECK_FALSE(house.pool.find_cached({std::nullopt, "w", tokens}));
    }
}

TEST_CASE("weights may change along a chain", "[engine][kv]") {
    Cached house(4);
    const auto base = house.chain(1, 0, "base");
    const BlockId late = *house.pool.allocate();
    REQUIRE(house.cache(base[0], "base + late", 16, late) == late);
    CHECK(house.find(base[0], "base + late", 16) == late);
    CHECK_FALSE(house.find(base[0], "base", 16));
}

TEST_CASE("the first block under a key stays when a second one comes", "[engine][kv]") {
    Cached house(4);
    const BlockId first = *house.pool.allocate();
    const BlockId second = *house.pool.allocate();
    CHECK(house.cache(std::nullopt, "w", 0, first) == first);
    CHECK(house.cache(std::nullopt, "w", 0, second) == first);
    CHECK(house.cache(std::nullopt, "w", 0, first) == first);
    CHECK_FALSE(house.pool.is_cached(second));
    CHECK(house.pool.cached_blocks() == 1);
}

TEST_CASE("a block whose parent is not cached does not enter", "[engine][kv]") {
    Cached house(2);
    const BlockId parent = *house.pool.allocate();
    const BlockId child = *house.pool.allocate();
    CHECK_FALSE(house.cache(parent, "w", 16, child));
    CHECK(house.pool.cached_blocks() == 0);
}

TEST_CASE("a cached block that nobody holds counts as free and is handed out when no empty one is left",
          "[engine][kv]") {
    Cached house(3);
    const auto blocks = house.chain(1, 0);
    house.release(blocks);
    CHECK(house.pool.free_blocks() == 3);
    CHECK(house.pool.cached_blocks() == 1);
    CHECK(*house.pool.allocate() != blocks[0]);
    CHECK(*house.pool.allocate() != blocks[0]);
    CHECK(house.find(std::nullopt, "w", 0) == blocks[0]);
    CHECK(*house.pool.allocate() == blocks[0]);
    CHECK_FALSE(house.find(std::nullopt, "w", 0));
    CHECK_FALSE(house.pool.allocate());
    CHECK(house.pool.free_blocks() == 0);
}

TEST_CASE("a cached block that is held again is not handed out", "[engine][kv]") {
    Cached house(1);
    const auto blocks = house.chain(1, 0);
    house.release(blocks);
    house.pool.share(blocks[0]);
    CHECK(house.pool.owners(blocks[0]) == 1);
    CHECK(house.pool.free_blocks() == 0);
    CHECK_FALSE(house.pool.allocate());
    house.release(blocks);
    CHECK(house.pool.free_blocks() == 1);
}

TEST_CASE("the chain that rested longest leaves first, and a child before its parent", "[engine][kv]") {
    Cached house(4);
    const auto older = house.chain(2, 0);
    const auto newer = house.chain(2, 500);
    house.release(older);
    house.release(newer);
    // Used once more by its first block alone.
    house.pool.share(older[0]);
    house.pool.release(older[0]);
    std::vector<BlockId> order;
    while (const auto block = house.pool.allocate()) order.push_back(*block);
    CHECK(order == std::vector<BlockId>{older[1], newer[1], newer[0], older[0]});
}

TEST_CASE("forgetting a block empties all that was cached behind it", "[engine][kv]") {
    Cached house(5);
    const auto chain = house.chain(3, 0);
    const BlockId branch = *house.pool.allocate();
    REQUIRE(house.cache(chain[0], "w", 700, branch) == branch);
    const auto other = house.chain(1, 900);
    house.pool.release(branch);
    house.release(chain);
    house.release(other);
    house.pool.forget(std::vector<BlockId>{chain[1]});
    CHECK(house.find(std::nullopt, "w", 0) == chain[0]);
    CHECK_FALSE(house.find(chain[0], "w", 16));
    CHECK(house.find(chain[0], "w", 700) == branch);
    house.pool.forget(chain);
    CHECK(house.pool.cached_blocks() == 1);
    CHECK(house.find(std::nullopt, "w", 900) == other[0]);
    CHECK(house.pool.free_blocks() == 5);
}

TEST_CASE("a block that somebody holds is not forgotten with another's", "[engine][kv]") {
    Cached house(2);
    const auto chain = house.chain(2, 0);
    house.pool.share(chain[0]);
    house.release(chain);
    house.pool.forget(chain);
    CHECK(house.find(std::nullopt, "w", 0) == chain[0]);
    CHECK_FALSE(house.find(chain[0], "w", 16));
}

TEST_CASE("forgetting everything leaves held blocks with their holders", "[engine][kv]") {
    Cached house(4);
    const auto held = house.chain(1, 0);
    house.release(house.chain(2, 500));
    house.pool.forget_all();
    CHECK(house.pool.cached_blocks() == 0);
    CHECK(house.pool.owners(held[0]) == 1);
    CHECK(house.pool.free_blocks() == 3);
    house.release(held);
    CHECK(house.pool.free_blocks() == 4);
}
