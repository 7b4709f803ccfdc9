#include "engine/module/slot_groups.hpp"

#include <catch2/catch.hpp>

#include <utility>

namespace attune {
namespace {

struct Segment {
    int rows;
    std::vector<std::pair<int, float>> slots;
};

Batch batch_of(const std::vector<Segment>& segments) {
    Batch batch;
    batch.segment_rows = {0};
    batch.segment_offsets = {0};
    for (const Segment& segment : segments) {
        batch.segment_rows.push_back(batch.segment_rows.back() + segment.rows);
        for (const auto& [slot, weight] : segment.slots) batch.segment_slots.push_back({SlotId{slot}, weight});
        batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
    }
    batch.tokens.resize(static_cast<std::size_t>(batch.segment_rows.back()));
    return batch;
}

SlotLevels group(const std::vector<Segment>& segments) { return group_by_slot(segments_of(batch_of(segments))); }

using Rows = std::vector<std::int32_t>;
using Weights = std::vector<float>;

TEST_CASE("rows of one slot come together whatever lies between them", "[engine][slots]") {
    const auto levels = group({{2, {{5, 1}}}, {1, {}}, {1, {{3, 1}}}, {2, {{5, 0.5F}}}});
    REQUIRE(levels.size() == 1);
    REQUIRE(levels[0].size() == 2);
    CHECK(levels[0][0].slot == SlotId{5});
    CHECK(levels[0][0].rows == Rows{0, 1, 4, 5});
    CHECK(levels[0][0].weights == Weights{1, 1, 0.5F, 0.5F});
    CHECK(levels[0][1].rows == Rows{3});
}

TEST_CASE("each row keeps its own order of modules", "[engine][slots]") {
    const auto levels = group({{1, {{1, 1}, {2, 1}}}, {1, {{2, 1}, {1, 1}}}});
    REQUIRE(levels.size() == 2);
    for (const auto& level : levels) {
        REQUIRE(level.size() == 2);
        CHECK(level[0].rows.size() == 1);
        CHECK(level[0].rows != level[1].rows);
    }
    CHECK(levels[0][0].slot == SlotId{1});
    CHECK(levels[0][0].rows == Rows{0});
    CHECK(levels[1][0].slot == SlotId{2});
    CHECK(levels[1][0].rows == Rows{0});
}

TEST_CASE("a weight of zero is no module, and the next one moves up", "[engine][slots]") {
    const auto levels = group({{1, {{1, 0}, {2, -1}}}, {1, {{3, 0}}}});
    REQUIRE(levels.size() == 1);
    REQUIRE(levels[0].size() == 1);
    CHECK(levels[0][0].slot == SlotId{2});
    CHECK(levels[0][0].weights == Weights{-1});
}

TEST_CASE("the same module twice on a row acts twice", "[engine][slots]") {
    const auto levels = group({{1, {{1, 0.5F}, {1, 0.25F}}}});
    REQUIRE(levels.size() == 2);
    CHECK(levels[1][0].weights == Weights{0.25F});
}

TEST_CASE("base rows and empty batches make no groups", "[engine][slots]") {
    CHECK(group({{4, {}}}).empty());
    CHECK(group_by_slot(segments_of(Batch{})).empty());
    const auto levels = group({{0, {{1, 1}}}, {1, {}}});
    for (const auto& level : levels) CHECK(level.empty());
}

}  // namespace
}  // namespace attune
