// What a product is told to read ahead for its modules.
#include <torch/torch.h>

#include "engine/kernels/lora.hpp"
#include "engine/kernels/read_ahead.hpp"
#include "engine/slots/slot_rows.hpp"

#include <c10/core/InferenceMode.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstring>

namespace attune {
namespace {

using namespace testing;

constexpr std::size_t kLineFloats = static_cast<std::size_t>(kCacheLine) / sizeof(float);

/// The numbers in the lines, in order.
std::vector<float> numbers_in(const ReadAhead& ahead) {
    const LinesAhead lines = ahead.over(1);
    std::vector<float> numbers(static_cast<std::size_t>(lines.lines) * kLineFloats);
    for (std::int64_t i = 0; i < lines.count; ++i) {
        const std::int64_t end = i + 1 < lines.count ? lines.runs[i + 1].before : lines.lines;
        std::memcpy(numbers.data() + static_cast<std::size_t>(lines.runs[i].before) * kLineFloats, lines.runs[i].first,
                    static_cast<std::size_t>((end - lines.runs[i].before) * kCacheLine));
    }
    return numbers;
}

/// Numbers as they lie in slots of float32 that were empty: whole lines, padded with zeros.
class Expected {
public:
    void add(std::vector<float> values) {
        values.resize((values.size() + kLineFloats - 1) / kLineFloats * kLineFloats);
        all.insert(all.end(), values.begin(), values.end());
    }
    void add(const Module& module, int layer, Projection projection) {
        for (const LowRankPair& pair : module.pairs) {
            if (pair.layer != layer || pair.projection != projection) continue;
            add(pair.a);
            const int out = static_cast<int>(pair.b.size()) / pair.rank;
            std::vector<float> panels(packed_b_elements(out, pair.rank));
            pack_lora_b(pair.b.data(), out, pair.rank, panels.data());
            add(panels);
        }
    }
    void add_terms(const Module& module, int layer, Projection projection) {
        for (const OutputTerm& term : module.outputs) {
            if (term.layer != layer || term.projection != projection) continue;
            add(term.gain);
            add(term.add);
        }
    }
    std::vector<float> all;
};

/// The products of one input.
class Products {
public:
    explicit Products(const std::vector<Projection>& projections) {
        for (const Projection projection : projections) list_.push_back({projection, &y_, {}});
    }
    std::vector<float> reads(const ModuleSlots& slots, int layer, const Batch& batch) const {
        ReadAhead ahead;
        slots.add_reads(layer, list_, *slots.plan(batch), ahead);
        return numbers_in(ahead);
    }

private:
    torch::Tensor y_;
    std::vector<ModuleSlots::Product> list_;
};

struct Resident {
    ModelShape base = small_base();
    ModuleSlots slots{base, options_of(torch::kFloat32, false), torch::kCPU};
    std::vector<ModulePtr> modules;
    std::vector<SlotId> installed;

    SlotId install(Kind kind) {
        modules.push_back(make_kind(base, kind, static_cast<unsigned>(modules.size()) + 1));
        auto slot = slots.install(modules.back());
        if (!slot) FAIL(slot.error().message);
        installed.push_back(*slot);
        return *slot;
    }
};

TEST_CASE_METHOD(Resident, "read ahead is what the rows' modules hold for the products, as it will be read",
                 "[engine][slots]") {
    const c10::InferenceMode guard;
    for (const Kind kind : {Kind::lora, Kind::gain, Kind::shards, Kind::lora, Kind::bias, Kind::lora}) install(kind);
    const Products qkv({Projection::q, Projection::k, Projection::v});
    // The last three modules stay away; the second stage of the last row repeats one.
    const Batch batch = batch_of({{{installed[2], 1.0F}},
                                  {},
                                  {{installed[1], 0.5F}},
                                  {{installed[0], 1.0F}},
                                  {{installed[2], 0.5F}, {installed[0], 1.0F}}});
    for (const int layer : {0, 1}) {
        Expected expected;
        expected.add_terms(*modules[1], layer, Projection::q);
        expected.add_terms(*modules[1], layer, Projection::v);
        // Then pairs: stage by stage, module by module as the rows name them, projection by projection.
        for (const std::size_t index : {2U, 0U, 0U})
            for (const Projection projection : {Projection::q, Projection::k, Projection::v})
                expected.add(*modules[index], layer, projection);
        CHECK(qkv.reads(slots, layer, batch) == expected.all);
    }
    CHECK(qkv.reads(slots, 0, batch_of({{}, {}})).empty());
    CHECK(Products({Projection::k}).reads(slots, 0, batch_of({{{installed[0], 1.0F}}})).empty());
    CHECK(Products({}).reads(slots, 0, batch).empty());
}

TEST_CASE_METHOD(Resident, "nothing is read ahead of changes that lie in the base", "[engine][slots]") {
    const c10::InferenceMode guard;
    const Batch batch = batch_of({{{install(Kind::lora), 1.0F}}, {{install(Kind::gain), 1.0F}}});
    const Products q({Projection::q});
    CHECK_FALSE(q.reads(slots, 0, batch).empty());
    slots.set_merged(true, false);
    CHECK(q.reads(slots, 0, batch).empty());
}

TEST_CASE("libtorch reads nothing ahead", "[engine][slots]") {
    const c10::InferenceMode guard;
    const ModelShape base = small_base();
    ModuleSlots slots(base, options_of(torch::kFloat32, true), torch::kCPU);
    const auto slot = slots.install(make_kind(base, Kind::lora, 1));
    REQUIRE(slot);
    CHECK(Products({Projection::q}).reads(slots, 0, batch_of({{{*slot, 1.0F}}})).empty());
}

}  // namespace
}  // namespace attune
