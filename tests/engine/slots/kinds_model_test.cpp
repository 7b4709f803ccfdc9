#include <torch/torch.h>

#include "engine/slots/kinds_house.hpp"
#include "support/worker_threads.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

namespace attune {
namespace {

using namespace testing;

const std::vector<TokenId> kTokens{7, 61, 300, 12, 12, 250, 99, 3, 181, 44, 5, 318, 77, 20, 64, 1, 130, 209};

ModulePtr make_prefix(const ModelShape& base, int tokens, unsigned seed) {
    Numbers numbers(seed, 0.5F);
    auto module = std::make_shared<Module>();
    module->id.name = "prefix";
    const int values = base.layer_count() * tokens * base.kv_heads * base.head_dim;
    module->prefix = PrefixSegment{tokens, numbers.draw(values), numbers.draw(values)};
    return module;
}

// One sequence of every kind, some of several, and base rows between them.
std::vector<KindsSequence> everybody(KindsHouse& house) {
    const ModelShape& base = house.model->shape();
    const bool head_norms = base.model_type == "qwen3";
    std::vector<SlotId> slots;
    for (int i = 0; i < kKinds; ++i)
        slots.push_back(
            house.install(make_kind(base, static_cast<Kind>(i), static_cast<unsigned>(i) + 1, 0.05F, head_norms)));
    const SlotId prefix = house.install(make_prefix(base, 21, 3));
    const auto slot = [&](Kind kind) { return slots[static_cast<std::size_t>(kind)]; };
    std::vector<KindsSequence> all;
    const auto add = [&](RowSlots modules, Combine combine = Combine::sequence) {
        std::vector<TokenId> tokens = kTokens;
        std::rotate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(all.size() % tokens.size()),
                    tokens.end());
        all.push_back(house.start(tokens, std::move(modules), combine));
    };
    add({});
    for (const SlotId one : slots) add({{one, 1.0F}});
    add({{prefix, 1.0F}});
    add({});
    add({{slot(Kind::all), 0.5F}, {slot(Kind::lora), 1.0F}, {slot(Kind::prompt), 1.0F}});
    add({{slot(Kind::gain), 0.5F}, {slot(Kind::input), -1.0F}, {slot(Kind::bias), 1.0F}, {prefix, 1.0F}});
    add({{slot(Kind::bottleneck), 0.5F}, {slot(Kind::all), 0.5F}}, Combine::parallel);
    add({{slot(Kind::vector), 0.5F}, {slot(Kind::bottleneck), 0.5F}, {slot(Kind::linear), 0.5F}});
    add({{slot(Kind::linear), 0.75F}, {slot(Kind::linear), 0.25F}}, Combine::interpolate);
    all.push_back(all[2]);  // the same as another, from its sixth token on
    all.back().modules_from = 5;
    return all;
}

TEST_CASE("B17: a row with modules of any kind has the same bits alone, in a batch, in chunks and on any threads",
          "[engine][slots][B17]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    const WorkerThreads threads(1);
    KindsHouse house(name, false, dtype);
    const std::vector<KindsSequence> all = everybody(house);
    std::vector<torch::Tensor> alone;
    for (const KindsSequence& one : all) {
        house.forget();
        alone.push_back(house.whole(one));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::vector<TokenId>& tokens = all[i].sequence.tokens;
        house.forget();
        const auto base = house.whole(house.start({tokens.begin() + all[i].virtual_tokens, tokens.end()}, {}));
        CAPTURE(name, i);
        CHECK(torch::equal(alone[i], base) == all[i].slots.empty());
    }
    for (const int turn : {0, 1, 2}) {
        set_worker_threads(turn == 0 ? 1 : 2);
        house.forget();
        std::vector<KindsSequence> running = all;
        if (turn == 1) std::reverse(running.begin(), running.end());
        for (int now = 0; now < 60; ++now) {
            std::vector<std::pair<KindsSequence*, int>> wanted;
            std::vector<std::pair<std::size_t, int>> parts;  // sequence, its first row's place in `alone`
            for (std::size_t i = 0; i < running.size(); ++i) {
                KindsSequence& one = running[i];
                if (one.left() == 0 || (static_cast<int>(i) + now + turn) % 5 == 0) continue;
                const int rows = std::min(one.left(), turn == 2 ? 18 : (static_cast<int>(i) + now) % 4 + 1);
                wanted.emplace_back(&one, rows);
                parts.emplace_back(turn == 1 ? running.size() - 1 - i : i, one.sequence.done - one.virtual_tokens);
            }
            if (wanted.empty()) continue;
            const Batch batch = house.step(wanted);
            const torch::Tensor logits = house.logits(batch);
            for (std::size_t s = 0; s < parts.size(); ++s) {
                const BatchSequence& entry = batch.sequences[s];
                for (int row = 0; row < entry.rows; ++row) {
                    const int at = parts[s].second + row;
                    if (at < 0) continue;  // a virtual token
                    if (!torch::equal(logits[entry.first_row + row], alone[parts[s].first][at]))
                        FAIL(name << ", turn " << turn << ", step " << now << ": row " << at << " of sequence "
                                  << parts[s].first << " differs");
                }
            }
        }
        for (const KindsSequence& one : running) REQUIRE(one.left() == 0);
    }
}

TEST_CASE("kernels and libtorch give the same logits for every kind of module", "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    KindsHouse kernels(name, false);
    KindsHouse reference(name, true);
    const auto ours = everybody(kernels);
    const auto theirs = everybody(reference);
    for (std::size_t i = 0; i < ours.size(); ++i) {
        kernels.forget();
        reference.forget();
        const auto a = kernels.whole(ours[i]);
        const auto b = reference.whole(theirs[i]);
        CAPTURE(name, i, distance(a, b));
        CHECK(distance(a, b) < 2e-4F * std::max(1.0F, a.abs().max().item<float>()));
    }
}

TEST_CASE("A16: what comes into freed places gives the logits of fresh memory", "[engine][slots][A16]") {
    const auto kind = static_cast<Kind>(GENERATE(range(0, kKinds)));
    const std::string name = "qwen3_qknorm";
    const auto make = [&](const KindsHouse& house) { return make_kind(house.model->shape(), kind, 5, 0.05F, true); };
    KindsHouse fresh(name);
    const SlotId first = fresh.install(make(fresh));
    const auto expected = fresh.whole(fresh.start(kTokens, {{first, 1.0F}}));
    KindsHouse used(name);
    const SlotId neighbour = used.install(make_kind(used.model->shape(), Kind::lora, 8));
    const SlotId large = used.install(make_kind(used.model->shape(), Kind::all, 9, 2.0F, true));
    const SlotId dense = used.install(make_kind(used.model->shape(), Kind::dense, 10, 2.0F));
    const std::uint64_t full = used.slots->used_bytes();
    used.slots->remove(large);
    used.slots->remove(dense);
    const ModulePtr module = make(used);
    const std::uint64_t before = used.slots->used_bytes();
    const SlotId again = used.install(module);
    CAPTURE(static_cast<int>(kind));
    CHECK(used.slots->used_bytes() - before == ModuleSlots::bytes_needed(*module, torch::kFloat32));
    CHECK(used.slots->used_bytes() < full);
    CHECK(torch::equal(used.whole(used.start(kTokens, {{again, 1.0F}})), expected));
    used.slots->remove(again);
    used.slots->remove(neighbour);
    CHECK(used.slots->used_bytes() == 0);
}

TEST_CASE("the plain path gives the paged one's logits under every kind of module", "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    KindsHouse house(name, torch_kernels);
    std::vector<KindsSequence> all = everybody(house);
    std::vector<std::pair<KindsSequence*, int>> wanted;
    for (KindsSequence& one : all) wanted.emplace_back(&one, one.left());
    const Batch batch = house.step(wanted);
    const c10::InferenceMode guard;
    const auto paged = house.logits(batch);
    const auto plain = house.model->logits(house.model->forward_plain(batch, *house.slots), batch, *house.slots);
    CAPTURE(name, torch_kernels);
    CHECK(distance(paged, plain) < 2e-4F * std::max(1.0F, paged.abs().max().item<float>()));
}

TEST_CASE("a prefix in the cache is what plain attention sees before the sequence", "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    KindsHouse house(name, torch_kernels);
    const SlotId prefix = house.install(make_prefix(house.model->shape(), 5, 3));
    KindsSequence one = house.start(kTokens, {{prefix, 1.0F}});
    const Batch batch = house.step({{&one, one.left()}});
    const c10::InferenceMode guard;
    const auto paged = house.logits(batch);
    const auto plain = house.model->logits(house.model->forward_plain(batch, *house.slots), batch, *house.slots);
    const auto base = house.whole(house.start(kTokens, {}));
    CAPTURE(name, torch_kernels);
    CHECK(distance(paged, plain) <= golden::kTolerance);
    CHECK(distance(paged, base) > 1e-2F);
}

}  // namespace
}  // namespace attune
