// Counts what a step allocates: operator new is replaced for this program, torch's allocator for this file's tests.
#include <torch/torch.h>

#include "engine/kernels/bf16_dot.hpp"
#include "engine/slots/kinds_house.hpp"
#include "support/worker_threads.hpp"

#include <c10/core/CPUAllocator.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted_or_null(std::size_t bytes) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted(std::size_t bytes) {
    if (void* memory = counted_or_null(bytes)) return memory;
    throw std::bad_alloc();
}

void* counted(std::size_t bytes, std::align_val_t alignment) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
    throw std::bad_alloc();
}

/// torch's own, and a count.
class CountingAllocator final : public c10::Allocator {
public:
    explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}
    c10::DataPtr allocate(std::size_t bytes) override {
        allocations.fetch_add(1, std::memory_order_relaxed);
        return inner_->allocate(bytes);
    }
    c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

private:
    c10::Allocator* inner_;
};

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// Catch's form: a sanitizer refuses memory of its own operator new at our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace attune {
namespace {

using namespace testing;

/// One step, its result dropped, as the engine does it.
void compute(KindsHouse& house, const Batch& batch) {
    const c10::InferenceMode guard;
    const torch::Tensor hidden = house.model->forward(batch, *house.kv, *house.slots);
    const torch::Tensor logits = house.model->logits(hidden, batch, *house.slots, batch.logit_rows);
    CHECK(std::isfinite(logits.const_data_ptr<float>()[0]));
}

std::int64_t allocations_of(KindsHouse& house, const Batch& batch) {
    const std::int64_t before = allocations.load();
    const c10::InferenceMode guard;
    {
        const torch::Tensor hidden = house.model->forward(batch, *house.kv, *house.slots);
        const torch::Tensor logits = house.model->logits(hidden, batch, *house.slots, batch.logit_rows);
    }
    return allocations.load() - before;
}

}  // namespace

TEST_CASE("a steady decode step allocates nothing, whatever modules its rows have", "[engine][slots]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string form = GENERATE(as<std::string>{}, "f32", "bf16", "int8", "int4");
    const bool bf16_activations = GENERATE(false, true);
    if (bf16_activations && (form != "bf16" || bf16_dot_kernels() == nullptr)) return;
    const auto [dtype, bits] = *weight_form(form);
    CAPTURE(name, form, bf16_activations);
    static CountingAllocator counting(c10::GetCPUAllocator());
    c10::SetCPUAllocator(&counting, /*priority=*/100);
    // Each thread makes its scratch at the first piece that it gets, and when a helper gets one is up to the machine.
    const WorkerThreads threads(1);
    KindsHouse house(name, false, dtype, dtype, bits, bf16_activations);
    const ModelShape& base = house.model->shape();
    std::vector<KindsSequence> all;
    const auto add = [&](RowSlots modules, Combine combine = Combine::sequence) {
        all.push_back(house.start({3, 17, 250, 9, 61, 44, 7, 12, 5, 300, 81, 2}, std::move(modules), combine));
    };
    std::vector<SlotId> slots;
    add({});
    for (const Kind kind : {Kind::lora, Kind::shards, Kind::dense, Kind::gain, Kind::bias, Kind::embedding, Kind::head,
                            Kind::norm, Kind::vector, Kind::linear, Kind::bottleneck}) {
        const auto seed = static_cast<unsigned>(slots.size()) + 1;
        slots.push_back(house.install(make_kind(base, kind, seed, 0.05F, base.model_type == "qwen3")));
        add({{slots.back(), 1.0F}});
    }
    add({{slots[0], 1.0F}, {slots[3], 0.5F}, {slots.back(), 1.0F}});
    add({{slots.back(), 0.5F}, {slots[8], 0.5F}}, Combine::parallel);
    add({{slots[9], 0.5F}, {slots[9], 0.5F}}, Combine::interpolate);
    std::vector<std::pair<KindsSequence*, int>> prompts;
    std::vector<std::pair<KindsSequence*, int>> decode;
    for (KindsSequence& one : all) {
        prompts.emplace_back(&one, 5);
        decode.emplace_back(&one, 1);
    }
    compute(house, house.step(prompts));
    // The first steps of a shape make what the later ones use.
    CHECK(allocations_of(house, house.step(decode)) > 0);
    const Batch again = house.step(decode);
    for (int i = 0; i < 20; ++i) compute(house, again);
    for (int step = 0; step < 3; ++step) {
        const Batch batch = house.step(decode);
        CHECK(allocations_of(house, batch) == 0);
    }
    // A result that is kept costs the next step its own.
    const c10::InferenceMode guard;
    const torch::Tensor kept = house.model->forward(again, *house.kv, *house.slots);
    const torch::Tensor copy = kept.clone();
    CHECK(allocations_of(house, house.step({decode[0], decode[1]})) > 0);
    CHECK(torch::equal(kept, copy));
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 100);
}

}  // namespace attune
