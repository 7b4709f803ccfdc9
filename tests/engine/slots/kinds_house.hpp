#pragma once

// A golden model with resident modules of any kind and sequences that use them, step by step. torch comes first.

#include "engine/kv/kv_cache.hpp"
#include "engine/model/model.hpp"
#include "engine/model/step_maker.hpp"
#include "engine/slots/slot_rows.hpp"
#include "support/golden.hpp"

#include <c10/core/InferenceMode.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace attune::testing {

/// A sequence and the modules on it. What stands before it (prefix, soft prompt) is part of `tokens`.
struct KindsSequence {
    TestSequence sequence;
    RowSlots slots;
    Combine combine = Combine::sequence;
    int modules_from = 0;  ///< position
    int virtual_tokens = 0;

    int left() const { return static_cast<int>(sequence.tokens.size()) - sequence.done; }
};

class KindsHouse {
public:
    static constexpr int kBlocks = 256;

    explicit KindsHouse(const std::string& name, bool torch_kernels = false, torch::Dtype slot_dtype = torch::kFloat32,
                        torch::Dtype base_dtype = torch::kFloat32, WeightBits bits = WeightBits::full,
                        bool bf16_activations = false) {
        auto loaded =
            load_model(golden::model_folder(name), {torch::kCPU, base_dtype, torch_kernels, bits, bf16_activations});
        if (!loaded) throw std::runtime_error(loaded.error().message);
        model = std::move(*loaded);
        slots =
            std::make_unique<ModuleSlots>(model->shape(), options_of(slot_dtype, torch_kernels, 64 << 20), torch::kCPU);
        kv = std::make_unique<KvCache>(model->shape(), kBlocks, base_dtype, torch::kCPU, torch_kernels,
                                       bf16_activations);
    }

    SlotId install(const ModulePtr& module) {
        auto slot = slots->install(module);
        if (!slot) throw std::runtime_error(slot.error().message);
        return *slot;
    }

    /// The tokens behind what their modules put before them; a prefix is written to blocks of its own.
    KindsSequence start(std::vector<TokenId> tokens, RowSlots modules, Combine combine = Combine::sequence) {
        KindsSequence made;
        made.slots = std::move(modules);
        made.combine = combine;
        for (const SlotWeight& slot : made.slots) {
            const Module& module = *slots->module(slot.slot);
            if (module.virtual_tokens() == 0) continue;
            made.virtual_tokens = module.virtual_tokens();
            for (int i = 0; i < made.virtual_tokens; ++i) made.sequence.tokens.push_back(-1 - i);
            if (!module.prefix) continue;
            // From the lowest number up, the other end than StepMaker's.
            for (int at = 0; at < made.virtual_tokens; at += kBlockTokens)
                made.sequence.blocks.push_back(BlockId{next_prefix_block_++});
            kv->write_prefix(made.sequence.blocks, *module.prefix);
            made.sequence.done = made.virtual_tokens;
        }
        made.sequence.tokens.insert(made.sequence.tokens.end(), tokens.begin(), tokens.end());
        return made;
    }

    /// The next `rows` tokens of each.
    Batch step(const std::vector<std::pair<KindsSequence*, int>>& wanted) {
        std::vector<std::pair<TestSequence*, int>> plain;
        std::vector<int> first;
        for (const auto& [one, rows] : wanted) {
            plain.emplace_back(&one->sequence, rows);
            first.push_back(one->sequence.done);
        }
        Batch batch = steps_.step(plain);
        batch.segment_rows = {0};
        batch.segment_offsets = {0};
        for (std::size_t s = 0; s < wanted.size(); ++s) {
            const KindsSequence& one = *wanted[s].first;
            const BatchSequence& entry = batch.sequences[s];
            const int base_rows = std::clamp(one.modules_from - first[s], 0, entry.rows);
            if (base_rows > 0) add_segment(batch, entry.first_row + base_rows, {}, Combine::sequence);
            if (base_rows < entry.rows) add_segment(batch, entry.first_row + entry.rows, one.slots, one.combine);
        }
        return batch;
    }

    torch::Tensor logits(const Batch& batch) {
        const c10::InferenceMode guard;
        return model->logits(model->forward(batch, *kv, *slots), batch, *slots).contiguous();
    }

    /// All of a sequence in one step: the logits of its real tokens.
    torch::Tensor whole(KindsSequence one) {
        const int hidden = one.virtual_tokens - one.sequence.done;  // soft prompt rows of this step
        const torch::Tensor rows = logits(step({{&one, one.left()}}));
        return rows.narrow(0, hidden, rows.size(0) - hidden);
    }

    /// The step maker starts over: every block but the prefixes' is free.
    void forget() { steps_ = StepMaker(kBlocks); }

    std::unique_ptr<Model> model;
    std::unique_ptr<ModuleSlots> slots;
    std::unique_ptr<KvCache> kv;

private:
    static void add_segment(Batch& batch, int end, const RowSlots& modules, Combine combine) {
        batch.segment_rows.push_back(end);
        batch.segment_slots.insert(batch.segment_slots.end(), modules.begin(), modules.end());
        batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
        batch.segment_combine.push_back(combine);
    }

    StepMaker steps_{kBlocks};
    int next_prefix_block_ = 0;
};

}  // namespace attune::testing
