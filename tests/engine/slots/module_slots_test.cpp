#include <torch/torch.h>

#include "engine/module/module_slots.hpp"
#include "engine/slots/slot_rows.hpp"

#include <c10/core/InferenceMode.h>

#include <catch2/catch.hpp>

#include <random>

namespace attune {
namespace {

using testing::batch_of;
using testing::distance;
using testing::options_of;
using testing::RowSlots;
using testing::same_bits;
using testing::small_base;

ModulePtr make_module(const ModelShape& base, int rank, unsigned seed,
                      const std::vector<Projection>& projections = {}) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.3F);
    auto module = std::make_shared<Module>();
    module->id = {"m" + std::to_string(seed), ""};
    module->kind = "lora";
    module->max_rank = rank;
    for (int layer = 0; layer < base.layer_count(); ++layer)
        for (int i = 0; i < kProjections; ++i) {
            const auto projection = static_cast<Projection>(i);
            if (!projections.empty() &&
                std::find(projections.begin(), projections.end(), projection) == projections.end())
                continue;
            LowRankPair pair{layer, projection, rank, 0.5F + 0.25F * static_cast<float>(seed % 4), {}, {}};
            pair.a.resize(static_cast<std::size_t>(rank * base.in_features(projection)));
            pair.b.resize(static_cast<std::size_t>(rank * base.out_features(projection)));
            for (auto* values : {&pair.a, &pair.b})
                for (float& value : *values) value = normal(random);
            module->pairs.push_back(std::move(pair));
        }
    return module;
}

// The formula in float64, from the module's own values.
torch::Tensor expected(const std::vector<std::pair<ModulePtr, float>>& modules, int layer, Projection projection,
                       const torch::Tensor& x, const torch::Tensor& y) {
    torch::Tensor sum = y.to(torch::kFloat64);
    for (const auto& [module, weight] : modules)
        for (const LowRankPair& pair : module->pairs) {
            if (pair.layer != layer || pair.projection != projection) continue;
            const auto a = torch::tensor(pair.a, torch::kFloat64).view({pair.rank, -1});
            const auto b = torch::tensor(pair.b, torch::kFloat64).view({-1, pair.rank});
            sum = sum + torch::matmul(torch::matmul(x.to(torch::kFloat64), a.t()), b.t()) *
                            (static_cast<double>(pair.scale) * weight);
        }
    return sum;
}

struct Mixed {
    ModelShape base = small_base();
    std::vector<ModulePtr> modules;
    std::vector<SlotId> slots;

    void install(ModuleSlots& into, const std::vector<int>& ranks) {
        unsigned seed = 1;
        for (const int rank : ranks) {
            modules.push_back(make_module(base, rank, seed++));
            auto slot = into.install(modules.back());
            if (!slot) FAIL(slot.error().message);
            slots.push_back(*slot);
        }
    }
};

TEST_CASE_METHOD(Mixed, "a module installed in pieces has the bits it has at once, and no slot before",
                 "[engine][slots]") {
    for (const bool torch_kernels : {false, true}) {
        const c10::InferenceMode guard;
        ModuleSlots::Options options = options_of(torch::kBFloat16, torch_kernels, 32 << 20);
        options.max_rank = 2000;
        ModuleSlots at_once(base, options, torch::kCPU);
        ModuleSlots in_pieces(base, options, torch::kCPU);
        const ModulePtr module = make_module(base, 2000, 1);
        const auto whole = at_once.install(module);
        REQUIRE(whole);
        const auto enough = [] { return true; };
        REQUIRE(in_pieces.begin_install(module));
        CHECK_FALSE(in_pieces.go_on_installing(enough));
        in_pieces.give_up_installing();
        CHECK(in_pieces.used_bytes() == 0);

        REQUIRE(in_pieces.begin_install(module));
        CHECK(in_pieces.used_bytes() == at_once.used_bytes());
        int pieces = 1;
        std::optional<SlotId> slot;
        for (; !(slot = in_pieces.go_on_installing(enough)); ++pieces) CHECK(in_pieces.module(*whole) == nullptr);
        CHECK(pieces > 3);
        CHECK(in_pieces.module(*slot) == module.get());
        torch::manual_seed(3);
        const auto x = torch::randn({2, base.in_features(Projection::down)});
        const auto y = torch::randn({2, base.out_features(Projection::down)});
        const auto rows_of = [](SlotId id) { return batch_of({{{id, 1.0F}}, {{id, 0.5F}}}); };
        const auto expected_rows = at_once.apply(1, Projection::down, x, y.clone(), *at_once.plan(rows_of(*whole)));
        CHECK(same_bits(in_pieces.apply(1, Projection::down, x, y.clone(), *in_pieces.plan(rows_of(*slot))),
                        expected_rows));
    }
}

TEST_CASE_METHOD(Mixed, "ranks from 1 to 33 in one batch give each row its own module", "[engine][slots][B11]") {
    for (const bool torch_kernels : {false, true}) {
        const c10::InferenceMode guard;
        ModuleSlots resident(base, options_of(torch::kFloat32, torch_kernels), torch::kCPU);
        modules.clear();
        slots.clear();
        install(resident, {1, 3, 5, 12, 20, 33});
        std::vector<RowSlots> rows{{}};
        for (const SlotId slot : slots) {
            rows.push_back({{slot, 1.0F}});
            rows.push_back({});
        }
        rows.push_back({{slots[2], 0.7F}, {slots[5], -0.5F}});
        rows.push_back({{slots[5], -0.5F}, {slots[2], 0.7F}});
        const auto plan = resident.plan(batch_of(rows));
        torch::manual_seed(3);
        for (int layer = 0; layer < 2; ++layer)
            for (int i = 0; i < kProjections; ++i) {
                const auto projection = static_cast<Projection>(i);
                const auto count = static_cast<std::int64_t>(rows.size());
                const auto x = torch::randn({count, base.in_features(projection)});
                const auto y = torch::randn({count, base.out_features(projection)});
                REQUIRE(resident.touches(layer, projection, *plan));
                const auto out = resident.apply(layer, projection, x, y.clone(), *plan);
                for (std::int64_t row = 0; row < count; ++row) {
                    std::vector<std::pair<ModulePtr, float>> applied;
                    for (const auto& [slot, weight] : rows[static_cast<std::size_t>(row)])
                        applied.emplace_back(modules[static_cast<std::size_t>(value_of(slot))], weight);
                    CAPTURE(torch_kernels, layer, i, row);
                    if (applied.empty()) CHECK(same_bits(out[row], y[row]));
                    CHECK(distance(out[row], expected(applied, layer, projection, x[row], y[row])) < 2e-5F);
                }
            }
    }
}

TEST_CASE_METHOD(Mixed, "a row has the same bits alone, in any batch and at any chunking", "[engine][slots]") {
    const c10::InferenceMode guard;
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        ModuleSlots resident(base, options_of(dtype, false), torch::kCPU);
        modules.clear();
        slots.clear();
        install(resident, {5, 16, 20});
        torch::manual_seed(4);
        std::vector<RowSlots> rows;
        for (int row = 0; row < 50; ++row) {
            RowSlots mine;
            if (row % 4 != 0) mine.push_back({slots[static_cast<std::size_t>(row) % 3], 1.0F});
            if (row % 5 == 1) mine.push_back({slots[static_cast<std::size_t>(row + 1) % 3], 0.3F});
            rows.push_back(mine);
        }
        const auto x = torch::randn({50, base.hidden_size});
        const auto y = torch::randn({50, base.out_features(Projection::q)});
        const auto run = [&](std::int64_t first, std::int64_t count) {
            const std::vector<RowSlots> some(rows.begin() + first, rows.begin() + first + count);
            return resident.apply(1, Projection::q, x.narrow(0, first, count), y.narrow(0, first, count).clone(),
                                  *resident.plan(batch_of(some)));
        };
        const auto together = run(0, 50);
        for (const std::int64_t chunk : {1, 3, 7, 17})
            for (std::int64_t first = 0; first < 50; first += chunk) {
                const std::int64_t count = std::min<std::int64_t>(chunk, 50 - first);
                CAPTURE(chunk, first);
                CHECK(same_bits(run(first, count), together.narrow(0, first, count)));
            }
    }
}

TEST_CASE_METHOD(Mixed, "B17: the order of rows in a batch does not matter", "[engine][slots][B17]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, {4, 6});
    const RowSlots none;
    const RowSlots a{{slots[0], 1.0F}};
    const RowSlots b{{slots[1], 1.0F}};
    torch::manual_seed(5);
    const auto x = torch::randn({1, base.hidden_size});
    const auto y = torch::randn({1, base.out_features(Projection::up)});
    const auto alone = [&](const RowSlots& row) {
        return resident.apply(0, Projection::up, x, y.clone(), *resident.plan(batch_of({row})));
    };
    for (const auto& order :
         std::vector<std::vector<RowSlots>>{{none, a}, {a, none}, {none, none, a, b, none}, {b, a, b}}) {
        const auto count = static_cast<std::int64_t>(order.size());
        const auto out = resident.apply(0, Projection::up, x.expand({count, -1}).contiguous(),
                                        y.expand({count, -1}).contiguous(), *resident.plan(batch_of(order)));
        for (std::int64_t row = 0; row < count; ++row)
            CHECK(same_bits(out.narrow(0, row, 1), alone(order[static_cast<std::size_t>(row)])));
    }
    CHECK(same_bits(alone(none), y));
    CHECK_FALSE(same_bits(alone(a), alone(b)));
}

TEST_CASE_METHOD(Mixed, "columns of a fused output are written in place, the others keep their bits",
                 "[engine][slots]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, {4});
    const auto fused = torch::randn({3, 200});
    const auto before = fused.clone();
    const auto x = torch::randn({3, base.hidden_size});
    const int out = base.out_features(Projection::k);
    const auto plan = resident.plan(batch_of({{{slots[0], 1.0F}}, {}, {{slots[0], 1.0F}}}));
    const auto y = resident.apply(0, Projection::k, x, fused.narrow(1, 50, out), *plan);
    CHECK(y.data_ptr() == fused.narrow(1, 50, out).data_ptr());
    CHECK(same_bits(fused.narrow(1, 0, 50), before.narrow(1, 0, 50)));
    CHECK(same_bits(fused.narrow(1, 50 + out, 150 - out), before.narrow(1, 50 + out, 150 - out)));
    CHECK(same_bits(fused[1], before[1]));
    CHECK(distance(y[0], expected({{modules[0], 1.0F}}, 0, Projection::k, x[0], before[0].narrow(0, 50, out))) < 1e-5F);
}

TEST_CASE_METHOD(Mixed, "kernels and libtorch agree, with A and B in either type", "[engine][slots]") {
    const c10::InferenceMode guard;
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        ModuleSlots kernels(base, options_of(dtype, false), torch::kCPU);
        ModuleSlots reference(base, options_of(dtype, true), torch::kCPU);
        modules.clear();
        slots.clear();
        install(kernels, {5, 12});
        for (const ModulePtr& module : modules) REQUIRE(reference.install(module));
        const auto batch = batch_of({{{slots[0], 1.0F}}, {}, {{slots[1], 0.5F}, {slots[0], 2.0F}}});
        const auto x = torch::randn({3, base.intermediate_size});
        const auto y = torch::randn({3, base.hidden_size});
        const auto one = kernels.apply(0, Projection::down, x, y.clone(), *kernels.plan(batch));
        const auto other = reference.apply(0, Projection::down, x, y, *reference.plan(batch));
        CHECK(distance(one, other) < 1e-4F);
        CHECK(same_bits(other[1], y[1]));
    }
}

TEST_CASE_METHOD(Mixed, "gradients reach x and y, and y is left alone", "[engine][slots]") {
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, {4});
    const auto plan = resident.plan(batch_of({{}, {{slots[0], 0.5F}}}));
    const auto x = torch::randn({2, base.hidden_size}, torch::requires_grad());
    const auto y = torch::randn({2, base.out_features(Projection::q)}, torch::requires_grad());
    const auto before = y.detach().clone();
    const auto out = resident.apply(0, Projection::q, x, y, *plan);
    CHECK(same_bits(y.detach(), before));
    out.sum().backward();
    CHECK(y.grad().eq(1).all().item<bool>());
    CHECK(x.grad()[0].eq(0).all().item<bool>());
    // d(sum)/dx = weight * scale * (B A) summed over outputs.
    const LowRankPair& pair = modules[0]->pairs[0];
    REQUIRE(pair.projection == Projection::q);
    const auto a = torch::tensor(pair.a).view({4, -1});
    const auto b = torch::tensor(pair.b).view({-1, 4});
    CHECK(distance(x.grad()[1], torch::matmul(b.sum(0), a) * (0.5F * pair.scale)) < 1e-4F);
}

TEST_CASE_METHOD(Mixed, "a bfloat16 output takes the sum in float32, rounded once", "[engine][slots]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, {4, 8});
    const auto plan = resident.plan(batch_of({{}, {{slots[0], 1.0F}, {slots[1], 1.0F}}}));
    const auto x = torch::randn({2, base.hidden_size}).to(torch::kBFloat16);
    const auto y = torch::randn({2, base.out_features(Projection::v)}).to(torch::kBFloat16);
    const auto out = resident.apply(1, Projection::v, x, y, *plan);
    CHECK(out.scalar_type() == torch::kBFloat16);
    CHECK(same_bits(out[0], y[0]));
    const auto exact = expected({{modules[0], 1.0F}, {modules[1], 1.0F}}, 1, Projection::v, x[1], y[1]);
    CHECK(distance(out[1], exact.to(torch::kFloat32).to(torch::kBFloat16)) <= 0.02F);
}

TEST_CASE_METHOD(Mixed, "places that a module does not touch are skipped", "[engine][slots]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    const auto slot = resident.install(make_module(base, 4, 1, {Projection::q, Projection::v}));
    REQUIRE(slot);
    const auto plan = resident.plan(batch_of({{{*slot, 1.0F}}}));
    CHECK(resident.touches(0, Projection::q, *plan));
    CHECK(resident.touches(1, Projection::v, *plan));
    CHECK_FALSE(resident.touches(0, Projection::k, *plan));
    CHECK_FALSE(resident.touches(0, Projection::down, *plan));
    const auto y = torch::randn({1, base.out_features(Projection::k)});
    CHECK(same_bits(resident.apply(0, Projection::k, torch::randn({1, base.hidden_size}), y.clone(), *plan), y));
    const auto base_plan = resident.plan(batch_of({{}}));
    CHECK_FALSE(resident.touches(0, Projection::q, *base_plan));
    const auto off = resident.plan(batch_of({{{*slot, 0.0F}}}));
    CHECK_FALSE(resident.touches(0, Projection::q, *off));
}

TEST_CASE_METHOD(Mixed, "the arena holds as many modules as their bytes allow", "[engine][slots]") {
    const ModulePtr module = make_module(base, 8, 1);
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        const std::uint64_t each = ModuleSlots::bytes_needed(*module, dtype);
        ModuleSlots resident(base, options_of(dtype, false, 3 * each + 100), torch::kCPU);
        CHECK(resident.used_bytes() == 0);
        std::vector<SlotId> held;
        for (int i = 0; i < 3; ++i) {
            const auto slot = resident.install(module);
            REQUIRE(slot);
            held.push_back(*slot);
        }
        CHECK(resident.used_bytes() == 3 * each);
        const auto refused = resident.install(module);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().code == Errc::no_room);
        CHECK(refused.error().message.find("\"m1\" needs " + std::to_string(each)) != std::string::npos);
        // Nothing of the refused one stayed behind.
        CHECK(resident.used_bytes() == 3 * each);
        resident.remove(held[1]);
        CHECK(resident.module(held[1]) == nullptr);
        CHECK(resident.used_bytes() == 2 * each);
        const auto again = resident.install(module);
        REQUIRE(again);
        CHECK(*again == held[1]);
        CHECK(resident.module(*again) == module.get());
    }
}

TEST_CASE_METHOD(Mixed, "A16: the freed place of one module serves another, and neighbours keep their values",
                 "[engine][slots][A16]") {
    const c10::InferenceMode guard;
    const std::uint64_t bytes = 2 * ModuleSlots::bytes_needed(*make_module(base, 9, 1), torch::kFloat32);
    ModuleSlots resident(base, options_of(torch::kFloat32, false, bytes), torch::kCPU);
    const ModulePtr kept = make_module(base, 9, 1);
    const auto kept_slot = resident.install(kept);
    REQUIRE(kept_slot);
    const auto x = torch::randn({1, base.hidden_size});
    const auto y = torch::randn({1, base.out_features(Projection::gate)});
    const auto run = [&](SlotId slot) {
        return resident.apply(1, Projection::gate, x, y.clone(), *resident.plan(batch_of({{{slot, 1.0F}}})));
    };
    const auto before = run(*kept_slot);
    for (unsigned turn = 0; turn < 12; ++turn) {
        const ModulePtr other = make_module(base, 1 + static_cast<int>(turn % 9), 2 + turn);
        const auto slot = resident.install(other);
        REQUIRE(slot);
        CHECK(distance(run(*slot), expected({{other, 1.0F}}, 1, Projection::gate, x, y)) < 2e-5F);
        CHECK(same_bits(run(*kept_slot), before));
        resident.remove(*slot);
    }
    CHECK(resident.used_bytes() == ModuleSlots::bytes_needed(*kept, torch::kFloat32));
}

TEST_CASE_METHOD(Mixed, "what a slot cannot hold is refused by its place", "[engine][slots]") {
    ModuleSlots::Options options = options_of(torch::kFloat32, false);
    options.max_rank = 4;
    ModuleSlots resident(base, options, torch::kCPU);
    const auto fault = [&](Module module) {
        const auto slot = resident.install(std::make_shared<Module>(std::move(module)));
        CHECK(resident.used_bytes() == 0);
        return slot ? std::string() : slot.error().message;
    };
    CHECK(fault(*make_module(base, 5, 1)) == "module \"m1\": layer 0 q_proj has rank 5, the limit is 4");
    Module module = *make_module(base, 2, 1);
    module.pairs[3].b.pop_back();
    CHECK(fault(module) == "module \"m1\": layer 0 o_proj has another base's shape");
    module = *make_module(base, 2, 1);
    module.pairs[1].projection = Projection::q;
    module.pairs[1] = module.pairs[0];
    CHECK(fault(module) == "module \"m1\": layer 0 q_proj is there twice");
    module = *make_module(base, 2, 1);
    module.pairs[0].layer = 2;
    CHECK(fault(module) == "module \"m1\": layer 2 q_proj is not in this base");
}

TEST_CASE_METHOD(Mixed, "a batch that names an empty slot is our own fault", "[engine][slots]") {
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    CHECK_THROWS_AS(resident.plan(batch_of({{{SlotId{0}, 1.0F}}})), c10::Error);
    install(resident, {2});
    resident.remove(slots[0]);
    resident.remove(slots[0]);
    CHECK_THROWS_AS(resident.plan(batch_of({{{slots[0], 1.0F}}})), c10::Error);
    CHECK_THROWS_AS(resident.plan(batch_of({{{SlotId{-1}, 1.0F}}})), c10::Error);
    CHECK(resident.plan(Batch{}) != nullptr);
}

}  // namespace
}  // namespace attune
