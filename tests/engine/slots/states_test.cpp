#include <torch/torch.h>

#include "engine/module/module_slots.hpp"
#include "engine/slots/slot_rows.hpp"

#include <c10/core/InferenceMode.h>

#include <catch2/catch.hpp>

#include <cmath>

namespace attune {
namespace {

using namespace testing;

torch::Tensor act(Activation activation, const torch::Tensor& t) {
    switch (activation) {
        case Activation::identity:
            return t;
        case Activation::tanh:
            return torch::tanh(t);
        case Activation::relu:
            return torch::clamp_min(t, 0);
        case Activation::silu:
            return t / (1 + torch::exp(-t));
        case Activation::gelu:
            return t * 0.5 * (1 + torch::erf(t / std::sqrt(2.0)));
    }
    return t;
}

// A state's matrices in float64; what a file leaves out is zero.
struct Wide {
    torch::Tensor vector, down, down_bias, up, up_bias;

    Wide(const StateLayer& state, std::int64_t hidden) {
        const auto or_zeros = [](const std::vector<float>& values, std::int64_t size) {
            return values.empty() ? torch::zeros({size}, torch::kFloat64) : doubles(values);
        };
        vector = or_zeros(state.vector, hidden);
        down = or_zeros(state.down, hidden).view({std::max(state.width, 1), -1});
        down_bias = or_zeros(state.down_bias, state.width);
        up = or_zeros(state.up, hidden).view({-1, std::max(state.width, 1)});
        up_bias = or_zeros(state.up_bias, hidden);
    }
    void add(const Wide& other, double weight) {
        for (const auto member : {&Wide::vector, &Wide::down, &Wide::down_bias, &Wide::up, &Wide::up_bias})
            this->*member = this->*member + other.*member * weight;
    }
};

// f(h), without the scale.
torch::Tensor f(const StateLayer& like, const Wide& state, const torch::Tensor& h) {
    if (like.kind == StateKind::vector) return state.vector;
    const auto activation = like.kind == StateKind::linear ? Activation::identity : like.activation;
    return state.up.matmul(act(activation, state.down.matmul(h) + state.down_bias)) + state.up_bias;
}

torch::Tensor expected(const std::vector<std::pair<const StateLayer*, float>>& states, Combine combine,
                       torch::Tensor h) {
    const auto before = h;
    const std::int64_t hidden = h.size(0);
    if (combine == Combine::interpolate && !states.empty()) {
        Wide mean(*states[0].first, hidden);
        mean.add(mean, -1);
        for (const auto& [state, weight] : states) mean.add(Wide(*state, hidden), weight);
        return h + f(*states[0].first, mean, h) * states[0].first->scale;
    }
    for (const auto& [state, weight] : states) {
        const auto& read = combine == Combine::parallel ? before : h;
        h = h + f(*state, Wide(*state, hidden), read) * (static_cast<double>(state->scale) * weight);
    }
    return h;
}

ModulePtr module_of(StateLayer state) {
    auto module = std::make_shared<Module>();
    module->id.name = "state";
    module->states = {std::move(state)};
    return module;
}

struct States {
    ModelShape base = small_base();
    std::vector<ModulePtr> modules;
    std::vector<SlotId> slots;

    void install(ModuleSlots& resident, StateKind kind, Activation activation, const std::vector<int>& widths) {
        modules.clear();
        slots.clear();
        for (const int width : widths) {
            Numbers numbers(static_cast<unsigned>(modules.size()) + 11, 0.2F);
            modules.push_back(module_of(make_state(base, 1, kind, activation, width, numbers)));
            auto slot = resident.install(modules.back());
            if (!slot) FAIL(slot.error().message);
            slots.push_back(*slot);
        }
    }

    // h' of every row.
    torch::Tensor run(const ModuleSlots& resident, const Batch& batch, const torch::Tensor& x,
                      const torch::Tensor& delta) const {
        auto h = x.clone();
        auto add = delta.clone();
        resident.apply_states(1, h, add, *resident.plan(batch));
        return add.defined() ? h + add : h;
    }
};

TEST_CASE_METHOD(States, "every kind of state and activation gives the formula, in every way of combining",
                 "[engine][slots][state]") {
    const bool torch_kernels = GENERATE(false, true);
    const auto kind = GENERATE(StateKind::vector, StateKind::linear, StateKind::bottleneck);
    const auto combine = GENERATE(Combine::sequence, Combine::parallel, Combine::interpolate);
    const c10::InferenceMode guard;
    for (const auto activation :
         {Activation::identity, Activation::tanh, Activation::relu, Activation::silu, Activation::gelu}) {
        if (kind != StateKind::bottleneck && activation != Activation::identity) continue;
        ModuleSlots resident(base, options_of(torch::kFloat32, torch_kernels), torch::kCPU);
        const int other = combine == Combine::interpolate ? 9 : 5;
        install(resident, kind, activation, {9, other, 9});
        const std::vector<RowSlots> rows{{},
                                         {{slots[0], 1.0F}},
                                         {{slots[0], 0.75F}, {slots[1], 0.25F}},
                                         {{slots[1], 0.25F}, {slots[0], 0.75F}},
                                         {{slots[2], 1.5F}, {slots[1], -1.0F}, {slots[0], 0.5F}},
                                         {}};
        const auto count = static_cast<std::int64_t>(rows.size());
        const auto x = torch::randn({count, base.hidden_size});
        const auto delta = torch::randn({count, base.hidden_size});
        const auto out = run(resident, batch_of(rows, combine), x, delta);
        for (std::int64_t row = 0; row < count; ++row) {
            std::vector<std::pair<const StateLayer*, float>> states;
            for (const auto& [slot, weight] : rows[static_cast<std::size_t>(row)])
                states.emplace_back(&modules[static_cast<std::size_t>(value_of(slot))]->states[0], weight);
            CAPTURE(torch_kernels, static_cast<int>(kind), static_cast<int>(combine), static_cast<int>(activation),
                    row);
            const auto h = x[row].to(torch::kFloat64) + delta[row].to(torch::kFloat64);
            if (states.empty()) CHECK(same_bits(out[row], x[row] + delta[row]));
            CHECK(distance(out[row], expected(states, combine, h)) < 2e-5F);
        }
    }
}

TEST_CASE_METHOD(States, "states run in the request's order, and the order shows", "[engine][slots][state]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, StateKind::bottleneck, Activation::tanh, {9, 5});
    const auto x = torch::randn({1, base.hidden_size}).expand({2, -1}).contiguous();
    const auto batch = batch_of({{{slots[0], 1.0F}, {slots[1], 1.0F}}, {{slots[1], 1.0F}, {slots[0], 1.0F}}});
    const auto out = run(resident, batch, x, torch::zeros_like(x));
    CHECK(distance(out[0], out[1]) > 1e-2F);
    auto together = batch;
    together.segment_combine = {Combine::parallel, Combine::parallel};
    const auto parallel = run(resident, together, x, torch::zeros_like(x));
    CHECK(distance(parallel[0], parallel[1]) < 1e-5F);
    CHECK(distance(parallel[0], out[0]) > 1e-2F);
}

TEST_CASE_METHOD(States, "a row's bits depend neither on its neighbours nor on how they combine theirs",
                 "[engine][slots][state]") {
    const c10::InferenceMode guard;
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        ModuleSlots resident(base, options_of(dtype, false), torch::kCPU);
        install(resident, StateKind::bottleneck, Activation::gelu, {9, 9, 9});
        std::vector<RowSlots> rows;
        std::vector<Combine> combine;
        for (int row = 0; row < 60; ++row) {
            RowSlots mine;
            for (int i = 0; i < row % 4; ++i)
                mine.push_back({slots[static_cast<std::size_t>(row + i) % 3], 0.5F + 0.25F * static_cast<float>(i)});
            rows.push_back(mine);
            combine.push_back(static_cast<Combine>(row / 4 % 3));
        }
        const auto x = torch::randn({60, base.hidden_size});
        const auto delta = torch::randn({60, base.hidden_size});
        const auto part = [&](std::int64_t first, std::int64_t count) {
            Batch batch = batch_of({rows.begin() + first, rows.begin() + first + count});
            batch.segment_combine.assign(combine.begin() + first, combine.begin() + first + count);
            return run(resident, batch, x.narrow(0, first, count), delta.narrow(0, first, count));
        };
        const auto together = part(0, 60);
        for (const std::int64_t chunk : {1, 7, 20})
            for (std::int64_t first = 0; first < 60; first += chunk) {
                const std::int64_t count = std::min<std::int64_t>(chunk, 60 - first);
                CAPTURE(chunk, first);
                CHECK(same_bits(part(first, count), together.narrow(0, first, count)));
            }
    }
}

TEST_CASE_METHOD(States, "gradients through states are the formula's", "[engine][slots][state]") {
    const auto combine = GENERATE(Combine::sequence, Combine::parallel, Combine::interpolate);
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, StateKind::bottleneck, Activation::gelu, {9, 9});
    const auto x = torch::randn({2, base.hidden_size}, torch::requires_grad());
    const auto zeros = torch::zeros_like(x);
    const RowSlots both{{slots[0], 0.25F}, {slots[1], 0.75F}};
    auto h = x;
    auto delta = zeros;
    resident.apply_states(1, h, delta, *resident.plan(batch_of({{}, both}, combine)));
    (delta.defined() ? h + delta : h)[1].square().sum().backward();
    const auto wide = x.detach().to(torch::kFloat64).requires_grad_();
    expected({{&modules[0]->states[0], 0.25F}, {&modules[1]->states[0], 0.75F}}, combine, wide[1])
        .square()
        .sum()
        .backward();
    CHECK(x.grad()[0].eq(0).all().item<bool>());
    CHECK(distance(x.grad()[1], wide.grad()[1]) < 1e-4F);
}

TEST_CASE_METHOD(States, "interpolated states that differ in shape are our own fault", "[engine][slots][state]") {
    const c10::InferenceMode guard;
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    install(resident, StateKind::linear, Activation::identity, {9, 5});
    const auto x = torch::randn({1, base.hidden_size});
    const RowSlots both{{slots[0], 0.5F}, {slots[1], 0.5F}};
    CHECK_THROWS_AS(run(resident, batch_of({both}, Combine::interpolate), x, x), c10::Error);
    CHECK_NOTHROW(run(resident, batch_of({both}, Combine::parallel), x, x));
}

}  // namespace
}  // namespace attune
