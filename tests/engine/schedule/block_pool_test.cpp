#include "engine/kv/block_pool.hpp"
#include "engine/kv/block_table.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace attune;

TEST_CASE("a pool hands out each of its blocks once", "[engine][kv]") {
    BlockPool pool(3);
    std::set<int> seen;
    for (int i = 0; i < 3; ++i) seen.insert(value_of(*pool.allocate()));
    CHECK(seen == std::set<int>{0, 1, 2});
    CHECK_FALSE(pool.allocate());
    CHECK(pool.free_blocks() == 0);
    CHECK(pool.total_blocks() == 3);
}

TEST_CASE("freeing a shared block keeps it until the last owner leaves", "[engine][kv]") {
    BlockPool pool(1);
    const BlockId block = *pool.allocate();
    pool.share(block);
    CHECK(pool.owners(block) == 2);
    pool.release(block);
    CHECK(pool.free_blocks() == 0);
    pool.release(block);
    CHECK(pool.free_blocks() == 1);
}

TEST_CASE("a table grows by whole blocks, all or nothing", "[engine][kv]") {
    BlockPool pool(3);
    BlockTable table(pool);
    REQUIRE(table.grow_to(17));
    CHECK(table.blocks().size() == 2);
    REQUIRE(table.grow_to(32));
    CHECK(table.blocks().size() == 2);
    CHECK_FALSE(table.grow_to(49));
    CHECK(table.blocks().size() == 2);
    CHECK(pool.free_blocks() == 1);
    REQUIRE(table.grow_to(48));
    CHECK(pool.free_blocks() == 0);
}

TEST_CASE("a table that shrinks gives back what its tokens no longer need", "[engine][kv]") {
    BlockPool pool(4);
    BlockTable table(pool);
    REQUIRE(table.grow_to(64));
    table.shrink_to(33);
    CHECK(pool.free_blocks() == 1);
    table.shrink_to(32);
    CHECK(pool.free_blocks() == 2);
    table.clear();
    CHECK(pool.free_blocks() == 4);
}

TEST_CASE("a table gives its blocks back when it dies, once also after moves", "[engine][kv]") {
    BlockPool pool(4);
    {
        BlockTable first(pool);
        REQUIRE(first.grow_to(32));
        BlockTable second(std::move(first));
        BlockTable third(pool);
        REQUIRE(third.grow_to(16));
        third = std::move(second);
        CHECK(pool.free_blocks() == 2);
    }
    CHECK(pool.free_blocks() == 4);
}

TEST_CASE("a forked table shares its blocks and only written ones are replaced", "[engine][kv]") {
    BlockPool pool(5);
    BlockTable original(pool);
    REQUIRE(original.grow_to(20));
    BlockTable fork = original.fork();
    CHECK(pool.free_blocks() == 3);

    std::vector<BlockCopy> copies;
    REQUIRE(fork.make_writable(20, 21, copies));
    REQUIRE(copies.size() == 1);
    CHECK(copies[0].from == original.blocks()[1]);
    CHECK(copies[0].to == fork.blocks()[1]);
    CHECK(fork.blocks()[0] == original.blocks()[0]);
    CHECK(fork.blocks()[1] != original.blocks()[1]);
    CHECK(pool.free_blocks() == 2);

    copies.clear();
    REQUIRE(original.make_writable(20, 21, copies));
    CHECK(copies.empty());  // it holds that block alone now
}

TEST_CASE("copy on write fails when no block is left, and the shared block stays shared", "[engine][kv]") {
    BlockPool pool(1);
    BlockTable original(pool);
    REQUIRE(original.grow_to(4));
    BlockTable fork = original.fork();
    std::vector<BlockCopy> copies;
    CHECK_FALSE(fork.make_writable(4, 5, copies));
    CHECK(copies.empty());
    CHECK(pool.owners(original.blocks()[0]) == 2);
}
