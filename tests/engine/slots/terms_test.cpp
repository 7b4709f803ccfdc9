#include <torch/torch.h>

#include "engine/module/module_slots.hpp"
#include "engine/slots/slot_rows.hpp"

#include <c10/core/InferenceMode.h>

#include <catch2/catch.hpp>

#include <algorithm>

namespace attune {
namespace {

using namespace testing;

using Applied = std::vector<std::pair<ModulePtr, float>>;

// y + all that the modules do on one linear layer, in float64, from the formulas of module.hpp. x: [in]; W: [out, in].
torch::Tensor expected(const Applied& modules, int layer, Projection projection, const torch::Tensor& input,
                       const torch::Tensor& w, const torch::Tensor& bias) {
    const auto x = input.to(torch::kFloat64);
    const auto here = [&](const auto& term) { return term.layer == layer && term.projection == projection; };
    const auto product = w.matmul(x);
    auto scaled = x;
    for (const auto& [module, weight] : modules)
        for (const InputTerm& term : module->inputs)
            if (here(term)) scaled = scaled + x * doubles(term.gain) * weight;
    auto y = w.matmul(scaled) + bias;
    for (const auto& [module, weight] : modules) {
        for (const LowRankPair& pair : module->pairs) {
            if (!here(pair)) continue;
            torch::Tensor t = torch::zeros({pair.rank}, torch::kFloat64);
            if (pair.a.empty()) {
                for (std::int64_t j = 0; j < x.size(0); ++j)
                    t = t + torch::one_hot(torch::tensor(j % pair.rank), pair.rank) * x[j];
            } else {
                t = doubles(pair.a).view({pair.rank, -1}).matmul(x);
            }
            y = y + doubles(pair.b).view({-1, pair.rank}).matmul(t) * (static_cast<double>(pair.scale) * weight);
        }
        for (const OutputTerm& term : module->outputs) {
            if (!here(term)) continue;
            if (!term.gain.empty())
                y = y + (term.gain_on_bias ? product + bias : product) * doubles(term.gain) * weight;
            if (!term.add.empty()) y = y + doubles(term.add) * weight;
        }
        if (projection == Projection::head && module->head_rows) {
            const auto& [tokens, rows] = *module->head_rows;
            const auto delta = doubles(rows).view({static_cast<std::int64_t>(tokens.size()), -1}).matmul(x) * weight;
            y = y.index_add(0, torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())), delta);
        }
    }
    return y;
}

struct Terms {
    ModelShape base = small_base();
    std::vector<ModulePtr> modules;

    std::vector<SlotId> install(ModuleSlots& into, const std::vector<Kind>& kinds) {
        std::vector<SlotId> slots;
        modules.clear();
        for (const Kind kind : kinds) {
            modules.push_back(make_kind(base, kind, static_cast<unsigned>(modules.size()) + 1, 0.3F));
            auto slot = into.install(modules.back());
            if (!slot) FAIL(slot.error().message);
            slots.push_back(*slot);
        }
        return slots;
    }
    Applied applied(const RowSlots& row, const std::vector<SlotId>& slots) const {
        Applied out;
        for (const auto& [slot, weight] : row) {
            const auto at = std::find(slots.begin(), slots.end(), slot) - slots.begin();
            out.emplace_back(modules[static_cast<std::size_t>(at)], weight);
        }
        return out;
    }
};

TEST_CASE_METHOD(Terms, "what modules do to a linear layer adds up as the formulas say", "[engine][slots]") {
    const bool torch_kernels = GENERATE(false, true);
    const bool biased = GENERATE(false, true);
    const bool scaled = GENERATE(false, true);
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, torch_kernels), torch::kCPU);
    const auto slots = install(
        resident, {Kind::lora, Kind::shards, Kind::dense, Kind::gain, Kind::bias, Kind::input, Kind::head, Kind::all});
    std::vector<RowSlots> rows{{}};
    for (const SlotId slot : slots) {
        rows.push_back({{slot, 1.0F}});
        rows.push_back({});
        rows.push_back({{slot, -0.75F}});
    }
    rows.push_back({{slots[3], 0.5F}, {slots[7], 2.0F}, {slots[5], 1.0F}, {slots[0], 1.0F}});
    rows.push_back({{slots[5], 1.0F}, {slots[7], -1.0F}, {slots[6], 0.5F}});
    const auto plan = resident.plan(batch_of(rows));
    const auto count = static_cast<std::int64_t>(rows.size());
    torch::manual_seed(7);
    for (int layer = 0; layer < 2; ++layer)
        for (int i = 0; i <= kProjections; ++i) {
            const auto projection = static_cast<Projection>(i);
            if (projection == Projection::head && layer > 0) continue;
            const auto x = torch::randn({count, base.in_features(projection)});
            const auto w = torch::randn({base.out_features(projection), base.in_features(projection)}) * 0.2;
            ModuleSlots::BaseProduct product;
            product.multiply = [&](const torch::Tensor& inputs) { return torch::matmul(inputs, w.t()); };
            torch::Tensor bias = torch::zeros({base.out_features(projection)});
            if (biased) product.bias = bias = torch::randn({base.out_features(projection)});
            product.of_base_input = scaled;
            const auto y = product.multiply(scaled ? resident.base_input(layer, projection, x, *plan) : x);
            REQUIRE(resident.touches(layer, projection, *plan));
            const auto out = resident.apply(layer, projection, x, y.clone(), *plan, product);
            for (std::int64_t row = 0; row < count; ++row) {
                CAPTURE(torch_kernels, biased, scaled, layer, i, row);
                const auto mine = applied(rows[static_cast<std::size_t>(row)], slots);
                if (mine.empty()) CHECK(same_bits(out[row], y[row]));
                const auto want = expected(mine, layer, projection, x[row], w.to(torch::kFloat64), bias);
                CHECK(distance(out[row] + bias, want) < 5e-5F);
            }
        }
}

TEST_CASE_METHOD(Terms, "gradients through every term are the formula's", "[engine][slots]") {
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    const auto slots = install(resident, {Kind::all, Kind::dense, Kind::input});
    const RowSlots row{{slots[0], 0.5F}, {slots[1], 1.0F}, {slots[2], -1.0F}};
    const auto plan = resident.plan(batch_of({{}, row}));
    for (const Projection projection : {Projection::k, Projection::down, Projection::head}) {
        const auto w = torch::randn({base.out_features(projection), base.in_features(projection)});
        ModuleSlots::BaseProduct product;
        product.bias = torch::randn({base.out_features(projection)});
        product.multiply = [&](const torch::Tensor& inputs) { return torch::matmul(inputs, w.t()); };
        const auto x = torch::randn({2, base.in_features(projection)}, torch::requires_grad());
        const auto y = product.multiply(x);
        const auto before = y.detach().clone();
        const auto out = resident.apply(0, projection, x, y, *plan, product);
        CHECK(same_bits(y.detach(), before));
        out[1].square().sum().backward();
        const auto wide = x.detach().to(torch::kFloat64).requires_grad_();
        const auto bias = product.bias.to(torch::kFloat64);
        const auto want = expected(applied(row, slots), 0, projection, wide[1], w.to(torch::kFloat64), bias) - bias;
        want.square().sum().backward();
        CAPTURE(static_cast<int>(projection));
        CHECK(x.grad()[0].eq(0).all().item<bool>());
        CHECK(distance(x.grad()[1], wide.grad()[1]) < 1e-4F * wide.grad()[1].abs().max().item<float>());
    }
}

TEST_CASE_METHOD(Terms, "shards of any size sum to what an explicit A gives", "[engine][slots]") {
    const c10::InferenceMode guard;
    const int in = base.hidden_size;
    for (const int rank : {1, 7, 39, 40, 64}) {
        Numbers numbers(5);
        auto shards = std::make_shared<Module>();
        shards->pairs = {make_pair(base, 0, Projection::q, rank, numbers, true)};
        auto explicit_a = std::make_shared<Module>(*shards);
        explicit_a->pairs[0].a.resize(static_cast<std::size_t>(rank * in));
        for (int j = 0; j < in; ++j) explicit_a->pairs[0].a[static_cast<std::size_t>(j % rank * in + j)] = 1;
        ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
        const auto slot = resident.install(shards);
        const auto other = resident.install(explicit_a);
        REQUIRE(slot);
        REQUIRE(other);
        const auto x = torch::randn({2, in});
        const auto y = torch::randn({2, base.out_features(Projection::q)});
        const auto run = [&](SlotId id) {
            return resident.apply(0, Projection::q, x, y.clone(), *resident.plan(batch_of({{{id, 1.0F}}, {}})));
        };
        CAPTURE(rank);
        CHECK(distance(run(*slot), run(*other)) < 1e-4F);
    }
}

TEST_CASE_METHOD(Terms, "a norm's rows gain their modules' deltas, the others keep the base's weight",
                 "[engine][slots]") {
    const bool torch_kernels = GENERATE(false, true);
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, torch_kernels), torch::kCPU);
    const auto slots = install(resident, {Kind::norm, Kind::all});
    const auto weight = torch::randn({base.hidden_size});
    const auto plan = resident.plan(batch_of({{}, {{slots[0], 0.5F}}, {{slots[1], 1.0F}, {slots[0], -1.0F}}, {}}));
    const auto rows = resident.norm_weight(1, NormSite::mlp, weight, 4, *plan);
    REQUIRE(rows.sizes() == torch::IntArrayRef({4, base.hidden_size}));
    CHECK(same_bits(rows[0], weight));
    CHECK(same_bits(rows[3], weight));
    const auto delta = [&](int module) {
        for (const NormTerm& term : modules[static_cast<std::size_t>(module)]->norms)
            if (term.layer == 1 && term.site == NormSite::mlp) return doubles(term.delta);
        return torch::Tensor();
    };
    CHECK(distance(rows[1], weight + delta(0) * 0.5) < 1e-6F);
    CHECK(distance(rows[2], weight + delta(1) - delta(0)) < 1e-6F);
    const auto base_plan = resident.plan(batch_of({{}, {}}));
    CHECK(resident.norm_weight(1, NormSite::mlp, weight, 2, *base_plan).data_ptr() == weight.data_ptr());
}

TEST_CASE_METHOD(Terms, "embeddings gain LoRA and replaced rows, virtual tokens are the prompt's rows",
                 "[engine][slots]") {
    const bool torch_kernels = GENERATE(false, true);
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, torch_kernels), torch::kCPU);
    const auto slots = install(resident, {Kind::embedding, Kind::prompt, Kind::lora});
    const std::vector<RowSlots> rows{{},
                                     {{slots[0], 1.0F}},
                                     {{slots[0], -0.5F}, {slots[1], 0.5F}},
                                     {{slots[1], 0.5F}, {slots[0], 1.0F}},
                                     {{slots[2], 1.0F}}};
    const std::vector<TokenId> tokens{5, 4, -1 - 3, 5, 9};
    const auto plan = resident.plan(batch_of(rows));
    REQUIRE(resident.touches_embedding(*plan));
    const auto x = torch::randn({5, base.hidden_size});
    const auto out = resident.embed(tokens, x.clone(), *plan);
    CHECK(same_bits(out[0], x[0]));
    CHECK(same_bits(out[4], x[4]));
    const EmbeddingTerm& term = *modules[0]->embedding;
    const auto lora = [&](TokenId token) {
        return doubles(term.b).view({-1, term.rank}).matmul(doubles(term.a).view({-1, term.rank})[token]) * term.scale;
    };
    // Token 4 is a replaced one (1, 4, 7, ...), token 5 is not.
    CHECK(distance(out[1], x[1] + lora(4) + doubles(term.rows).view({-1, base.hidden_size})[1]) < 1e-5F);
    CHECK(same_bits(out[2], torch::tensor(modules[1]->prompt->rows).view({4, -1})[3]));
    CHECK(distance(out[3], x[3] + lora(5)) < 1e-5F);
    CHECK_FALSE(resident.touches_embedding(*resident.plan(batch_of({{{slots[2], 1.0F}}}))));
    CHECK_THROWS_AS(resident.embed(std::vector<TokenId>{-1 - 4}, x.narrow(0, 0, 1).clone(),
                                   *resident.plan(batch_of({{{slots[1], 1.0F}}}))),
                    c10::Error);
}

TEST_CASE_METHOD(Terms, "a plan for some rows counts them by their place", "[engine][slots]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    const auto slots = install(resident, {Kind::head, Kind::lora});
    const auto batch = batch_of({{}, {{slots[0], 1.0F}}, {{slots[1], 1.0F}}, {{slots[0], 0.5F}}, {}});
    CHECK(resident.touches_head(batch));
    CHECK_FALSE(resident.touches_head(batch_of({{{slots[1], 1.0F}}, {}})));
    const auto x = torch::randn({5, base.hidden_size});
    const auto y = torch::randn({5, base.vocab_size});
    const auto all = resident.apply(0, Projection::head, x, y.clone(), *resident.plan(batch));
    for (const std::vector<std::int32_t>& rows :
         std::vector<std::vector<std::int32_t>>{{0}, {1}, {3}, {0, 3}, {1, 2, 4}}) {
        const auto index = torch::tensor(rows);
        const auto plan = resident.plan(batch, rows);
        const auto some =
            resident.apply(0, Projection::head, x.index_select(0, index), y.index_select(0, index), *plan);
        CHECK(same_bits(some, all.index_select(0, index)));
    }
}

}  // namespace
}  // namespace attune
