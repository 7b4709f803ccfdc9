#include "engine/model/model.hpp"
#include "engine/model/step_maker.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"

#include <c10/core/InferenceMode.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace attune {
namespace {

using testing::StepMaker;
using testing::TestSequence;

constexpr int kBlocks = 128;

// One case of the reference data as a row's modules: a single adapter, or several with weights ("cat").
struct Applied {
    std::string golden;
    std::vector<std::pair<std::string, float>> adapters;
};

std::vector<Applied> cases_of(const std::string& model) {
    std::vector<Applied> cases{{"base", {}},
                               {"lora_r4", {{"lora_r4", 1.0F}}},
                               {"lora_r4_b", {{"lora_r4_b", 1.0F}}},
                               {"lora_r6_qv", {{"lora_r6_qv", 1.0F}}},
                               {"rslora_patterns", {{"rslora_patterns", 1.0F}}},
                               {"combo_cat", {{"lora_r4", 0.7F}, {"lora_r4_b", 0.5F}}},
                               {"combo_cat_ranks", {{"lora_r4", 1.0F}, {"lora_r6_qv", -0.8F}}}};
    for (const char* name : {"lora_regex_l1", "lora_layer0_excl", "lora_all_linear"})
        if (std::filesystem::exists(golden::adapter_folder(model, name))) cases.push_back({name, {{name, 1.0F}}});
    return cases;
}

struct Setup {
    std::string name;
    std::unique_ptr<Model> model;
    std::unique_ptr<ModuleSlots> slots;
    std::unique_ptr<KvCache> kv;
    StepMaker steps{kBlocks};
    std::map<std::string, SlotId> resident;

    Setup(const std::string& model_name, bool torch_kernels) : name(model_name) {
        auto loaded = load_model(golden::model_folder(name), {torch::kCPU, torch::kFloat32, torch_kernels});
        if (!loaded) throw std::runtime_error(loaded.error().message);
        model = std::move(*loaded);
        ModuleSlots::Options options;
        options.device_bytes = 4 << 20;
        options.torch_kernels = torch_kernels;
        slots = std::make_unique<ModuleSlots>(model->shape(), options, torch::kCPU);
        kv = std::make_unique<KvCache>(model->shape(), kBlocks, torch::kFloat32, torch::kCPU, torch_kernels);
    }

    std::vector<SlotWeight> slots_of(const Applied& applied) {
        std::vector<SlotWeight> out;
        for (const auto& [adapter, weight] : applied.adapters) {
            if (!resident.contains(adapter)) {
                auto module = load_module(adapter, golden::adapter_folder(name, adapter), model->shape(), {});
                if (!module) throw std::runtime_error(module.error().message);
                auto slot = slots->install(*module);
                if (!slot) throw std::runtime_error(slot.error().message);
                resident[adapter] = *slot;
            }
            out.push_back({resident[adapter], weight});
        }
        return out;
    }

    // A step whose sequences each have their own modules.
    Batch step(const std::vector<std::pair<TestSequence*, int>>& wanted,
               const std::vector<std::vector<SlotWeight>>& modules) {
        Batch batch = steps.step(wanted);
        batch.segment_rows = {0};
        batch.segment_offsets = {0};
        for (std::size_t s = 0; s < wanted.size(); ++s) {
            batch.segment_rows.push_back(batch.sequences[s].first_row + batch.sequences[s].rows);
            batch.segment_slots.insert(batch.segment_slots.end(), modules[s].begin(), modules[s].end());
            batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
        }
        return batch;
    }

    torch::Tensor logits(const Batch& batch) {
        const c10::InferenceMode guard;
        return model->logits(model->forward(batch, *kv, *slots), batch, *slots).contiguous();
    }
};

float difference(const golden::Prompt& prompt, int first, const torch::Tensor& rows) {
    float largest = 0;
    const auto width = static_cast<std::size_t>(rows.size(1));
    for (std::int64_t row = 0; row < rows.size(0); ++row) {
        const float* at = rows.const_data_ptr<float>() + row * rows.size(1);
        largest = std::max(largest, golden::max_difference(std::vector<float>(at, at + width),
                                                           prompt.logits.row(static_cast<std::size_t>(first + row))));
    }
    return largest;
}

TEST_CASE("every LoRA that is loaded gives PEFT's logits alone", "[engine][slots][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    Setup setup(name, torch_kernels);
    for (const Applied& applied : cases_of(name)) {
        const golden::Case reference = golden::read_case(name, applied.golden);
        const auto modules = setup.slots_of(applied);
        for (const golden::Prompt& prompt : reference.prompts) {
            CAPTURE(name, torch_kernels, applied.golden, prompt.tokens.size());
            setup.steps = StepMaker(kBlocks);
            TestSequence sequence{prompt.tokens};
            const Batch batch = setup.step({{&sequence, static_cast<int>(prompt.tokens.size())}}, {modules});
            CHECK(difference(prompt, 0, setup.logits(batch)) <= golden::kTolerance);
        }
    }
}

TEST_CASE("B17: all of them mixed with base rows in one batch give the logits of each alone",
          "[engine][slots][golden][B17]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    const bool backwards = GENERATE(false, true);
    CAPTURE(name, torch_kernels, backwards);
    Setup setup(name, torch_kernels);
    std::vector<Applied> cases = cases_of(name);
    cases.insert(cases.begin() + 2, Applied{"base", {}});
    if (backwards) std::reverse(cases.begin(), cases.end());
    std::vector<golden::Case> references;
    std::vector<std::vector<SlotWeight>> modules;
    for (const Applied& applied : cases) {
        references.push_back(golden::read_case(name, applied.golden));
        modules.push_back(setup.slots_of(applied));
    }
    // Each case reads another prompt, in chunks of its own size, so that decode rows and chunks share steps.
    std::vector<TestSequence> sequences;
    std::vector<const golden::Prompt*> prompts;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        prompts.push_back(&references[i].prompts[3 - i % 3]);
        sequences.push_back({prompts.back()->tokens});
    }
    for (int now = 0; now < 40; ++now) {
        std::vector<std::pair<TestSequence*, int>> wanted;
        std::vector<std::vector<SlotWeight>> their;
        std::vector<std::pair<std::size_t, int>> parts;
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            const int left = static_cast<int>(sequences[i].tokens.size()) - sequences[i].done;
            if (left == 0) continue;
            parts.emplace_back(i, sequences[i].done);
            wanted.emplace_back(&sequences[i], std::min(left, static_cast<int>(i % 4) + 1));
            their.push_back(modules[i]);
        }
        if (wanted.empty()) break;
        const Batch batch = setup.step(wanted, their);
        const torch::Tensor logits = setup.logits(batch);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            const auto& [i, first] = parts[s];
            CAPTURE(now, cases[i].golden, first);
            CHECK(difference(*prompts[i], first,
                             logits.narrow(0, batch.sequences[s].first_row, batch.sequences[s].rows)) <=
                  golden::kTolerance);
        }
    }
    for (const TestSequence& sequence : sequences) CHECK(sequence.done == static_cast<int>(sequence.tokens.size()));
}

TEST_CASE("B17: base rows beside modules have the bits of a batch without them", "[engine][slots][golden][B17]") {
    const std::string name = GENERATE(from_range(golden::models()));
    Setup setup(name, false);
    const golden::Case reference = golden::read_case(name, "base");
    const auto modules = setup.slots_of({"lora_r4", {{"lora_r4", 1.0F}}});
    const std::vector<int>& tokens = reference.prompts[3].tokens;
    const auto size = static_cast<int>(tokens.size());
    TestSequence alone{tokens};
    const torch::Tensor expected = setup.logits(setup.step({{&alone, size}}, {{}}));
    TestSequence before{tokens};
    TestSequence base{tokens};
    TestSequence after{tokens};
    const Batch batch = setup.step({{&before, size}, {&base, size}, {&after, size}}, {modules, {}, modules});
    const torch::Tensor mixed = setup.logits(batch);
    CAPTURE(name);
    CHECK(torch::equal(mixed.narrow(0, size, size), expected));
    CHECK(torch::equal(mixed.narrow(0, 0, size), mixed.narrow(0, 2 * size, size)));
    CHECK_FALSE(torch::equal(mixed.narrow(0, 0, size), expected));
}

TEST_CASE("a module's row has the same bits alone, in a batch and in chunks", "[engine][slots][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    Setup setup(name, false);
    const golden::Case reference = golden::read_case(name, "rslora_patterns");
    const auto mine = setup.slots_of({"", {{"rslora_patterns", 1.0F}, {"lora_r4", 0.25F}}});
    const auto other = setup.slots_of({"", {{"lora_r4", 1.0F}}});
    const std::vector<int>& tokens = reference.prompts[3].tokens;
    const auto size = static_cast<int>(tokens.size());
    TestSequence alone{tokens};
    const torch::Tensor expected = setup.logits(setup.step({{&alone, size}}, {mine}));
    TestSequence chunked{tokens};
    TestSequence neighbour{reference.prompts[2].tokens};
    for (const int chunk : {3, 1, 7, 5, 2}) {
        const int first = chunked.done;
        std::vector<std::pair<TestSequence*, int>> wanted{{&chunked, chunk}};
        std::vector<std::vector<SlotWeight>> modules{mine};
        if (neighbour.done + 2 <= static_cast<int>(neighbour.tokens.size())) {
            wanted.insert(wanted.begin(), {&neighbour, 2});
            modules.insert(modules.begin(), other);
        }
        const Batch batch = setup.step(wanted, modules);
        const torch::Tensor rows = setup.logits(batch).narrow(0, batch.sequences.back().first_row, chunk);
        CAPTURE(name, chunk);
        CHECK(torch::equal(rows, expected.narrow(0, first, chunk)));
    }
    CHECK(chunked.done == size);
}

TEST_CASE("a module that begins inside a sequence leaves the rows before it to the base", "[engine][slots][golden]") {
    const bool torch_kernels = GENERATE(false, true);
    Setup setup("llama_gqa_tied", torch_kernels);
    const golden::Case reference = golden::read_case("llama_gqa_tied", "base");
    const auto modules = setup.slots_of({"lora_r4", {{"lora_r4", 1.0F}}});
    const golden::Prompt& prompt = reference.prompts[3];
    const auto size = static_cast<int>(prompt.tokens.size());
    TestSequence sequence{prompt.tokens};
    Batch batch = setup.step({{&sequence, size}}, {{}});
    batch.segment_rows = {0, 10, size};
    batch.segment_offsets = {0, 0, 1};
    batch.segment_slots = modules;
    const torch::Tensor logits = setup.logits(batch);
    CHECK(difference(prompt, 0, logits.narrow(0, 0, 10)) <= golden::kTolerance);
    CHECK(difference(prompt, 10, logits.narrow(0, 10, size - 10)) > 0.1F);
}

}  // namespace
}  // namespace attune
