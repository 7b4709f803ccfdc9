// Slots prepared for swaps of any rank: rows 12 to 18 of PEFT's hotswap table.

#include "slot_rows.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

using namespace attune::testing;

ModulePtr lora_of_rank(const ModelShape& base, int rank, unsigned seed = 1) {
    Numbers numbers(seed);
    auto module = std::make_shared<Module>();
    module->id = {"m" + std::to_string(seed), ""};
    for (int i = 0; i < kProjections; ++i)
        module->pairs.push_back(make_pair(base, 1, static_cast<Projection>(i), rank, numbers));
    module->outputs.push_back({1, Projection::q, {}, false, numbers.draw(base.out_features(Projection::q))});
    module->max_rank = rank;
    return module;
}

struct Prepared {
    explicit Prepared(bool torch_kernels, torch::Dtype dtype = torch::kFloat32, std::uint64_t bytes = 4 << 20)
        : slots(base, options_of(dtype, torch_kernels, bytes), torch::kCPU) {}

    torch::Tensor run(SlotId slot, Projection projection) const {
        torch::manual_seed(3);
        const auto x = torch::randn({5, base.in_features(projection)});
        const auto y = torch::randn({5, base.out_features(projection)});
        const auto plan = slots.plan(batch_of(std::vector<RowSlots>(5, {{slot, 0.7F}})));
        return slots.apply(1, projection, x, y, *plan);
    }
    std::string refusal(int rank, std::string_view when = "error") {
        const auto prepared = slots.prepare_slots(rank, when);
        if (prepared) return {};
        CHECK(prepared.error().code == Errc::invalid_argument);
        return prepared.error().message;
    }

    ModelShape base = small_base();
    ModuleSlots slots;
};

TEST_CASE("row 12: smaller ranks are padded, the output and a trained bias are unchanged", "[engine][slots][hotswap]") {
    const c10::InferenceMode guard;
    for (const bool torch_kernels : {false, true})
        for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
            Prepared house(torch_kernels, dtype);
            const ModulePtr small = lora_of_rank(house.base, 3, 1);
            const ModulePtr large = lora_of_rank(house.base, 8, 2);
            const SlotId first = *house.slots.install(small);
            const SlotId second = *house.slots.install(large);
            std::vector<torch::Tensor> before;
            for (int i = 0; i < kProjections; ++i) before.push_back(house.run(first, static_cast<Projection>(i)));
            const std::uint64_t used = house.slots.used_bytes();
            REQUIRE(house.slots.prepare_slots(8));
            for (int i = 0; i < kProjections; ++i) {
                const auto after = house.run(first, static_cast<Projection>(i));
                // Zeros are exact; where libtorch adds, it may do so in another order.
                if (torch_kernels)
                    CHECK(distance(after, before[static_cast<std::size_t>(i)]) < 1e-5F);
                else
                    CHECK(same_bits(after, before[static_cast<std::size_t>(i)]));
            }
            CHECK(house.slots.module(first) == small.get());
            CHECK(house.slots.used_bytes() > used);
            CHECK(house.slots.used_bytes() == 2 * house.slots.bytes_for(*large));
            CHECK(house.slots.bytes_for(*small) == house.slots.bytes_for(*large));

            // A later one takes the very same place.
            house.slots.remove(first);
            const ModulePtr next = lora_of_rank(house.base, 5, 4);
            REQUIRE(*house.slots.install(next) == first);
            Prepared alone(torch_kernels, dtype);
            const SlotId own = *alone.slots.install(next);
            CHECK(distance(house.run(first, Projection::up), alone.run(own, Projection::up)) < 1e-5F);
            house.slots.remove(first);
            house.slots.remove(second);
            CHECK(house.slots.used_bytes() == 0);
        }
}

TEST_CASE("rows 13 and 15: the same rank again changes nothing", "[engine][slots][hotswap]") {
    Prepared house(false);
    REQUIRE(house.slots.install(lora_of_rank(house.base, 4)));
    const std::uint64_t used = house.slots.used_bytes();
    for (int i = 0; i < 2; ++i) {
        const auto prepared = house.slots.prepare_slots(4);
        REQUIRE(prepared);
        CHECK(prepared->empty());
        CHECK(house.slots.used_bytes() == used);
    }
}

TEST_CASE("row 14: a target below a rank that is there is refused, and nothing has changed",
          "[engine][slots][hotswap]") {
    Prepared house(false);
    REQUIRE(house.slots.install(lora_of_rank(house.base, 10, 1)));
    REQUIRE(house.slots.install(lora_of_rank(house.base, 2, 2)));
    const std::uint64_t used = house.slots.used_bytes();
    CHECK(house.refusal(9) == "Trying to pad the adapter to the target rank 9, but the original rank is larger (10)");
    CHECK(house.slots.used_bytes() == used);
    REQUIRE(house.slots.prepare_slots(12));
    CHECK(house.refusal(10).find("rank 10, but the original rank is larger (12)") != std::string::npos);
    // From then on the prepared rank is the limit.
    const auto larger = house.slots.install(lora_of_rank(house.base, 13, 3));
    REQUIRE_FALSE(larger);
    CHECK(larger.error().message.find("has rank 13, the limit is 12") != std::string::npos);
    CHECK(house.refusal(65).find("above the largest rank of a module, 64") != std::string::npos);
}

TEST_CASE("row 16: a prepared slot keeps its module's own rank, alpha and so its scale, whatever its patterns say",
          "[engine][slots][hotswap]") {
    const c10::InferenceMode guard;
    Prepared house(false);
    auto patterned = std::make_shared<Module>(*lora_of_rank(house.base, 2, 1));
    for (std::size_t i = 0; i < patterned->pairs.size(); ++i)
        patterned->pairs[i].scale = 0.5F + static_cast<float>(i);  // as rank_pattern and alpha_pattern make them
    const std::vector<LowRankPair> pairs = patterned->pairs;
    const SlotId slot = *house.slots.install(patterned);
    std::vector<torch::Tensor> before;
    for (int i = 0; i < kProjections; ++i) before.push_back(house.run(slot, static_cast<Projection>(i)));
    REQUIRE(house.slots.prepare_slots(8));
    const Module& kept = *house.slots.module(slot);
    CHECK(kept.max_rank == 2);
    REQUIRE(kept.pairs.size() == pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        CHECK(kept.pairs[i].rank == 2);
        CHECK(kept.pairs[i].scale == pairs[i].scale);
        CHECK(same_bits(house.run(slot, pairs[i].projection), before[static_cast<std::size_t>(pairs[i].projection)]));
    }
}

TEST_CASE("row 17: without an adapter there is nothing to prepare", "[engine][slots][hotswap]") {
    Prepared house(false);
    CHECK(house.refusal(8).starts_with("No adapter layers found on the model"));
    REQUIRE(house.slots.install(make_kind(house.base, Kind::vector, 1)));
    CHECK(house.refusal(8).starts_with("No adapter layers found on the model"));
}

TEST_CASE("row 18: captured steps are an error, a warning or ignored", "[engine][slots][hotswap]") {
    const std::string words = "Call prepare_model_for_compiled_hotswap *before* compiling the model";
    Prepared house(false);
    REQUIRE(house.slots.install(lora_of_rank(house.base, 2)));
    house.slots.mark_captured();
    const std::uint64_t used = house.slots.used_bytes();
    CHECK(house.refusal(8) == words);
    CHECK(house.slots.used_bytes() == used);
    CHECK(house.refusal(8, "often").starts_with("check_compiles should be one of"));
    const auto warned = house.slots.prepare_slots(6, "warn");
    REQUIRE(warned);
    CHECK(*warned == words);
    const auto ignored = house.slots.prepare_slots(8, "ignore");
    REQUIRE(ignored);
    CHECK(ignored->empty());
    CHECK(house.slots.used_bytes() > used);
}

TEST_CASE("padding that finds no room leaves every slot as it was", "[engine][slots][hotswap]") {
    const c10::InferenceMode guard;
    const ModelShape base = small_base();
    const auto small = lora_of_rank(base, 2, 1);
    const auto other = lora_of_rank(base, 2, 2);
    const std::uint64_t each = ModuleSlots::bytes_needed(*small, torch::kFloat32);
    Prepared house(false, torch::kFloat32, 5 * each);
    const SlotId first = *house.slots.install(small);
    REQUIRE(house.slots.install(other));
    const auto before = house.run(first, Projection::down);
    const auto prepared = house.slots.prepare_slots(8);
    REQUIRE_FALSE(prepared);
    CHECK(prepared.error().code == Errc::no_room);
    CHECK(house.slots.used_bytes() == 2 * each);
    CHECK(same_bits(house.run(first, Projection::down), before));
    CHECK(house.slots.bytes_for(*small) == each);
}

TEST_CASE("shards have no rows to pad", "[engine][slots][hotswap]") {
    Prepared house(false);
    const auto shards = make_kind(house.base, Kind::shards, 1);
    REQUIRE(house.slots.install(shards));
    const std::uint64_t bytes = house.slots.used_bytes();
    REQUIRE(house.slots.install(lora_of_rank(house.base, 2, 2)));
    REQUIRE(house.slots.prepare_slots(16));
    CHECK(house.slots.bytes_for(*shards) == bytes);
}

}  // namespace
}  // namespace attune
