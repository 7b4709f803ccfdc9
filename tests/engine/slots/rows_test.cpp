#include <torch/torch.h>

#include "engine/slots/kinds_house.hpp"
#include "engine/weights/weight.hpp"
#include "support/worker_threads.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

namespace attune {
namespace {

using namespace testing;

constexpr int kSequences = 64;

std::vector<TokenId> tokens_of(int sequence, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back((sequence * 37 + i * 11 + 5) % 300);
    return tokens;
}

/// 64 sequences of 4 to 9 tokens; two of three have a module, some have two.
std::vector<KindsSequence> crowd(KindsHouse& house) {
    const ModelShape& base = house.model->shape();
    std::vector<SlotId> slots;
    for (const Kind kind : {Kind::lora, Kind::shards, Kind::gain, Kind::input, Kind::bottleneck, Kind::norm, Kind::lora,
                            Kind::head, Kind::embedding, Kind::bias}) {
        const auto seed = static_cast<unsigned>(slots.size()) + 1;
        slots.push_back(house.install(make_kind(base, kind, seed, 0.05F, base.model_type == "qwen3")));
    }
    std::vector<KindsSequence> all;
    for (int i = 0; i < kSequences; ++i) {
        const auto at = static_cast<std::size_t>(i);
        RowSlots modules;
        if (i % 3 != 0) modules.push_back({slots[at % slots.size()], 1.0F});
        if (i % 8 == 1) modules.push_back({slots[(at + 3) % slots.size()], 0.5F});
        all.push_back(house.start(tokens_of(i, 4 + i % 6), modules));
    }
    return all;
}

}  // namespace

TEST_CASE("a decode row has the same bits alone and shuffled into batches of 2 to 64, on one thread and on two",
          "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    CAPTURE(name, dtype);
    const WorkerThreads threads(1);
    KindsHouse house(name, false, dtype, dtype);
    std::vector<KindsSequence> all = crowd(house);
    std::vector<torch::Tensor> alone;  // the last token's logits
    for (KindsSequence& one : all) {
        if (one.left() > 1) house.logits(house.step({{&one, one.left() - 1}}));
        KindsSequence last = one;
        alone.push_back(house.logits(house.step({{&last, 1}}))[0]);
        one.sequence.blocks = last.sequence.blocks;
    }
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(7);
    for (int count = 2; count <= kSequences; count += count < 20 ? 1 : 11) {
        std::shuffle(order.begin(), order.end(), random);
        set_worker_threads(count % 2 + 1);
        std::vector<KindsSequence> batch(static_cast<std::size_t>(count));
        std::vector<std::pair<KindsSequence*, int>> wanted;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            batch[i] = all[order[i]];
            wanted.emplace_back(&batch[i], 1);
        }
        const torch::Tensor logits = house.logits(house.step(wanted));
        for (std::size_t i = 0; i < batch.size(); ++i)
            if (!same_bits(logits[static_cast<std::int64_t>(i)], alone[order[i]]))
                FAIL("row " << order[i] << " differs in a batch of " << count);
    }
}

TEST_CASE("a prompt's last row has the same bits at every size of its chunks, on one thread and on two",
          "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    CAPTURE(name, dtype);
    const WorkerThreads threads(1);
    KindsHouse house(name, false, dtype, dtype);
    const SlotId slot =
        house.install(make_kind(house.model->shape(), Kind::all, 3, 0.05F, house.model->shape().model_type == "qwen3"));
    constexpr int kTokens = 37;  // more than two blocks, more rows than a register block
    for (const RowSlots& modules : {RowSlots{}, RowSlots{{slot, 1.0F}}}) {
        torch::Tensor expected;
        for (int chunk = kTokens; chunk > 0; --chunk) {
            set_worker_threads(chunk % 2 + 1);
            house.forget();
            KindsSequence one = house.start(tokens_of(1, kTokens), modules);
            KindsSequence neighbour = house.start(tokens_of(2, kTokens), {});
            torch::Tensor last;
            while (one.left() > 0) {
                const int rows = std::min(chunk, one.left());
                std::vector<std::pair<KindsSequence*, int>> wanted{{&one, rows}};
                if (chunk % 3 == 0 && neighbour.left() > 0) wanted.insert(wanted.begin(), {&neighbour, 1});
                const torch::Tensor logits = house.logits(house.step(wanted));
                last = logits[logits.size(0) - 1];
            }
            if (!expected.defined()) expected = last;
            if (!same_bits(last, expected)) FAIL("chunks of " << chunk << " differ");
        }
    }
}

TEST_CASE("a hundred swaps of mixed rank and scale write no byte of the base's weights", "[engine][slots]") {
    KindsHouse house("llama_gqa_tied", false, torch::kBFloat16, torch::kBFloat16);
    const ModelShape& base = house.model->shape();
    struct Seen {
        const void* address;
        std::uint64_t epoch;  // counts every write of a part: overwritten, merged, restored, loaded again
        std::string hash;
        bool operator==(const Seen&) const = default;
    };
    const auto look = [&] {
        std::vector<Seen> seen;
        for (int layer = 0; layer < base.layer_count(); ++layer)
            for (int i = 0; i < kProjections; ++i) {
                const auto [weight, part] = house.model->projection_weight(layer, static_cast<Projection>(i));
                seen.push_back({weight->address(), weight->epoch(part), weight->hash(part)});
            }
        return seen;
    };
    const auto before = look();
    const auto plain = house.whole(house.start(tokens_of(0, 9), {}));
    Numbers numbers(5);
    for (int swap = 0; swap < 100; ++swap) {
        auto module = std::make_shared<Module>();
        module->id.name = "m";
        const int rank = 1 + swap * 7 % 64;
        for (int layer = 0; layer < base.layer_count(); ++layer)
            for (const Projection projection : {Projection::q, Projection::v, Projection::down}) {
                module->pairs.push_back(make_pair(base, layer, projection, rank, numbers));
                module->pairs.back().scale = 2.0F / static_cast<float>(1 + swap % 5);
            }
        const SlotId slot = house.install(module);
        house.forget();
        CHECK(distance(house.whole(house.start(tokens_of(0, 9), {{slot, 1.0F}})), plain) > 1e-3F);
        house.slots->remove(slot);
    }
    CHECK((look() == before));
    house.forget();
    CHECK(same_bits(house.whole(house.start(tokens_of(0, 9), {})), plain));
    // The watch sees a write.
    const auto [weight, part] = house.model->projection_weight(0, Projection::q);
    weight->overwrite_rows(part, 0, weight->read_rows(part, 0, 1));
    CHECK_FALSE((look() == before));
}

}  // namespace attune
