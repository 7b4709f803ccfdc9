#include <torch/torch.h>

#include "engine/module/module_slots.hpp"
#include "engine/slots/slot_rows.hpp"

#include <c10/core/InferenceMode.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

namespace attune {
namespace {

using namespace testing;

constexpr int kVocab = 32;

/// Modules that know 3, 1 and no tokens beyond the base's; the last replaces a row that the base has.
struct NewRows {
    explicit NewRows(torch::Dtype dtype, bool torch_kernels)
        : slots(base, options_of(dtype, torch_kernels), torch::kCPU) {
        Numbers numbers(5);
        for (const int count : {3, 1, 0}) {
            auto module = std::make_shared<Module>();
            module->id = {"m" + std::to_string(count), std::to_string(count)};
            if (count > 0) {
                module->new_tokens =
                    NewTokens{count, numbers.draw(count * base.hidden_size), numbers.draw(count * base.hidden_size)};
            } else {
                module->embedding.emplace();
                module->embedding->tokens = {4};
                module->embedding->rows = numbers.draw(base.hidden_size);
            }
            modules.push_back(module);
            const auto slot = slots.install(module);
            if (!slot) FAIL(slot.error().message);
            ids.push_back(*slot);
        }
    }
    torch::Tensor row(const std::vector<float>& values, int at) const {
        return doubles(values).view({-1, base.hidden_size})[at];
    }

    ModelShape base = small_base();
    ModuleSlots slots;
    std::vector<std::shared_ptr<Module>> modules;
    std::vector<SlotId> ids;
};

TEST_CASE("new tokens have the rows of the modules that know them, weighted and summed", "[engine][slots][B28]") {
    const c10::InferenceMode guard;
    for (const bool torch_kernels : {false, true})
        for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16}) {
            NewRows set(dtype, torch_kernels);
            const SlotId three = set.ids[0];
            const SlotId one = set.ids[1];
            const SlotId none = set.ids[2];
            const std::vector<RowSlots> rows = {
                {{three, 1}}, {{three, 0.5F}, {one, 2}}, {{none, 1}, {three, 1}}, {}, {{one, 1}}};
            Batch batch = batch_of(rows);
            batch.tokens = {kVocab + 2, kVocab, 4, 4, kVocab};
            const torch::Tensor table = torch::randn({5, set.base.hidden_size});
            const auto plan = set.slots.plan(batch);
            REQUIRE(set.slots.touches_embedding(*plan));
            const torch::Tensor x = set.slots.embed(batch.tokens, table.clone(), *plan);
            const float near = dtype == torch::kFloat32 ? 1e-6F : 1e-2F;
            CHECK(distance(x[0], set.row(set.modules[0]->new_tokens->input, 2)) < near);
            CHECK(distance(x[1], set.row(set.modules[0]->new_tokens->input, 0) * 0.5 +
                                     set.row(set.modules[1]->new_tokens->input, 0) * 2) < near);
            CHECK(distance(x[2], table[2] + set.row(set.modules[2]->embedding->rows, 0)) < near);
            CHECK(same_bits(x[3], table[3]));
            CHECK(distance(x[4], set.row(set.modules[1]->new_tokens->input, 0)) < near);

            // Logits of some of the rows, counted by their place in the step.
            const std::vector<std::int32_t> wanted = {0, 1, 3, 4};
            const torch::Tensor hidden = torch::randn({4, set.base.hidden_size});
            const torch::Tensor logits = set.slots.new_token_logits(hidden, batch, wanted, 3);
            REQUIRE(logits.sizes() == torch::IntArrayRef({4, 3}));
            const auto head = [&](int module, int token, int row) {
                return set.row(set.modules[static_cast<std::size_t>(module)]->new_tokens->head, token)
                    .dot(hidden[row].to(torch::kFloat64))
                    .item<double>();
            };
            const double close = dtype == torch::kFloat32 ? 1e-5 : 5e-2;
            for (int token = 0; token < 3; ++token) {
                CHECK(logits[0][token].item<double>() == Approx(head(0, token, 0)).margin(close));
                CHECK(logits[1][token].item<double>() ==
                      Approx(0.5 * head(0, token, 1) + (token == 0 ? 2 * head(1, 0, 1) : 0)).margin(close));
                CHECK(logits[2][token].item<float>() == 0);
            }
            CHECK(logits[3][0].item<double>() == Approx(head(1, 0, 3)).margin(close));
            CHECK(logits[3][1].item<float>() == 0);
        }
}

TEST_CASE("a row's new tokens do not feel the rows beside it", "[engine][slots][B28]") {
    const c10::InferenceMode guard;
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16}) {
        NewRows set(dtype, false);
        std::vector<RowSlots> rows;
        for (int i = 0; i < 9; ++i) rows.push_back({{set.ids[static_cast<std::size_t>(i % 2)], 1}});
        Batch batch = batch_of(rows);
        std::fill(batch.tokens.begin(), batch.tokens.end(), kVocab);
        const torch::Tensor hidden = torch::randn({9, set.base.hidden_size});
        std::vector<std::int32_t> all(9);
        std::iota(all.begin(), all.end(), 0);
        const torch::Tensor together = set.slots.new_token_logits(hidden, batch, all, 3);
        for (int i = 0; i < 9; ++i) {
            Batch alone = batch_of({rows[static_cast<std::size_t>(i)]});
            const std::vector<std::int32_t> first = {0};
            CHECK(same_bits(set.slots.new_token_logits(hidden.narrow(0, i, 1), alone, first, 3)[0], together[i]));
        }
    }
}

TEST_CASE("rows of new tokens that do not fit the base are refused", "[engine][slots][B28]") {
    NewRows set(torch::kFloat32, false);
    const auto fault = [&](NewTokens tokens) {
        auto module = std::make_shared<Module>();
        module->id.name = "m";
        module->new_tokens = std::move(tokens);
        const auto slot = set.slots.install(module);
        return slot ? std::string() : slot.error().message;
    };
    const std::vector<float> one(static_cast<std::size_t>(set.base.hidden_size));
    CHECK(fault({1, one, one}).empty());
    CHECK(fault({1, one, {}}) == "module \"m\": a row of a new token has another base's shape");
    CHECK(fault({2, one, one}) == "module \"m\": a row of a new token has another base's shape");
    CHECK(fault({0, {}, {}}) == "module \"m\": it has rows for 0 new tokens, the limit is 65536");
}

}  // namespace
}  // namespace attune
