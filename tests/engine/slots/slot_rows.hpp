#pragma once

// What tests of the slots share: a small base, hand-made modules of every kind, batches row by row. torch comes first.

#include "engine/module/module_slots.hpp"

#include <torch/torch.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace attune::testing {

inline ModelShape small_base() {
    ModelShape base;
    base.model_type = "llama";
    base.hidden_size = 40;
    base.intermediate_size = 72;
    base.heads = 4;
    base.kv_heads = 2;
    base.head_dim = 12;
    base.vocab_size = 32;
    base.max_context = 64;
    base.layers.resize(2);
    return base;
}

using RowSlots = std::vector<SlotWeight>;

/// One segment per row.
inline Batch batch_of(const std::vector<RowSlots>& rows, Combine combine = Combine::sequence) {
    Batch batch;
    batch.segment_rows = {0};
    batch.segment_offsets = {0};
    for (const RowSlots& slots : rows) {
        batch.tokens.push_back(1);
        batch.segment_rows.push_back(static_cast<std::int32_t>(batch.tokens.size()));
        batch.segment_slots.insert(batch.segment_slots.end(), slots.begin(), slots.end());
        batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
        batch.segment_combine.push_back(combine);
    }
    return batch;
}

inline ModuleSlots::Options options_of(torch::Dtype dtype, bool torch_kernels, std::uint64_t bytes = 4 << 20) {
    ModuleSlots::Options options;
    options.device_bytes = bytes;
    options.dtype = dtype;
    options.torch_kernels = torch_kernels;
    return options;
}

inline float distance(const torch::Tensor& a, const torch::Tensor& b) {
    return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().max().item<float>();
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
    const auto left = a.contiguous();
    const auto right = b.contiguous();
    return left.nbytes() == right.nbytes() && std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

/// Values of a module as a float64 tensor [rows, ...].
inline torch::Tensor doubles(const std::vector<float>& values, std::int64_t rows = 1) {
    const auto flat = torch::tensor(values, torch::kFloat64);
    return rows == 1 ? flat : flat.view({rows, -1});
}

/// Draws the numbers of hand-made modules.
class Numbers {
public:
    explicit Numbers(unsigned seed, float spread = 0.3F) : random_(seed), normal_(0, spread) {}
    std::vector<float> draw(int count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values) value = normal_(random_);
        return values;
    }

private:
    std::mt19937 random_;
    std::normal_distribution<float> normal_;
};

inline LowRankPair make_pair(const ModelShape& base, int layer, Projection projection, int rank, Numbers& numbers,
                             bool shards = false) {
    LowRankPair pair{layer, projection, rank, 0.5F, {}, {}};
    if (!shards) pair.a = numbers.draw(rank * base.in_features(projection));
    pair.b = numbers.draw(rank * base.out_features(projection));
    return pair;
}

inline StateLayer make_state(const ModelShape& base, int layer, StateKind kind, Activation activation, int width,
                             Numbers& numbers) {
    StateLayer state;
    state.layer = layer;
    state.kind = kind;
    state.activation = activation;
    state.scale = 0.4F;
    if (kind == StateKind::vector) {
        state.vector = numbers.draw(base.hidden_size);
        return state;
    }
    state.width = width;
    state.down = numbers.draw(width * base.hidden_size);
    state.up = numbers.draw(width * base.hidden_size);
    if (kind == StateKind::bottleneck) {
        state.down_bias = numbers.draw(width);
        state.up_bias = numbers.draw(base.hidden_size);
    }
    return state;
}

/// What a kind of module touches, in words that tests print.
enum class Kind {
    lora,
    shards,
    dense,
    gain,
    bias,
    input,
    embedding,
    head,
    norm,
    prompt,
    vector,
    linear,
    bottleneck,
    all
};
inline constexpr int kKinds = static_cast<int>(Kind::all) + 1;

inline bool is(Kind kind, Kind wanted) {
    // A module has a state of one kind at a layer, and everything but a soft prompt fits into one.
    if (kind == Kind::all)
        return wanted != Kind::prompt && wanted != Kind::vector && wanted != Kind::linear && wanted != Kind::dense;
    return kind == wanted;
}

/// A module of one kind on every place of the base where that kind can be.
inline ModulePtr make_kind(const ModelShape& base, Kind kind, unsigned seed, float spread = 0.1F,
                           bool head_norms = false) {
    Numbers numbers(seed, spread);
    auto module = std::make_shared<Module>();
    module->id = {"m" + std::to_string(seed), ""};
    module->kind = "test";
    const int hidden = base.hidden_size;
    const int rank = 3 + static_cast<int>(seed % 4);
    for (int layer = 0; layer < base.layer_count(); ++layer) {
        for (int i = 0; i < kProjections; ++i) {
            const auto projection = static_cast<Projection>(i);
            if (is(kind, Kind::lora) && i % 2 == 0)
                module->pairs.push_back(make_pair(base, layer, projection, rank, numbers));
            if (is(kind, Kind::shards) && i % 2 == 1)
                module->pairs.push_back(make_pair(base, layer, projection, rank + 4, numbers, true));
            if (is(kind, Kind::dense))
                module->pairs.push_back(
                    make_pair(base, layer, projection, base.in_features(projection), numbers, true));
            const int out = base.out_features(projection);
            if (is(kind, Kind::gain) && i % 2 == 0)
                module->outputs.push_back({layer, projection, numbers.draw(out), i % 4 == 0, {}});
            if (is(kind, Kind::bias) && (kind != Kind::all || i % 2 == 1))
                module->outputs.push_back({layer, projection, {}, false, numbers.draw(out)});
            if (is(kind, Kind::input) && (projection == Projection::down || projection == Projection::k))
                module->inputs.push_back({layer, projection, numbers.draw(base.in_features(projection))});
        }
        if (is(kind, Kind::norm)) {
            module->norms.push_back({layer, NormSite::attention, numbers.draw(hidden)});
            module->norms.push_back({layer, NormSite::mlp, numbers.draw(hidden)});
            if (head_norms) {
                module->norms.push_back({layer, NormSite::query, numbers.draw(base.head_dim)});
                module->norms.push_back({layer, NormSite::key, numbers.draw(base.head_dim)});
            }
        }
        for (const auto& [wanted, state] : {std::pair{Kind::vector, StateKind::vector},
                                            {Kind::linear, StateKind::linear},
                                            {Kind::bottleneck, StateKind::bottleneck}})
            if (is(kind, wanted))
                module->states.push_back(make_state(base, layer, state, static_cast<Activation>(seed % 5), 9, numbers));
    }
    if (is(kind, Kind::norm)) module->norms.push_back({0, NormSite::last, numbers.draw(hidden)});
    if (is(kind, Kind::embedding)) {
        EmbeddingTerm term;
        term.rank = rank;
        term.scale = 0.5F;
        term.a = numbers.draw(base.vocab_size * rank);
        term.b = numbers.draw(hidden * rank);
        for (TokenId token = 1; token < base.vocab_size; token += 3) term.tokens.push_back(token);
        term.rows = numbers.draw(static_cast<int>(term.tokens.size()) * hidden);
        module->embedding = term;
    }
    if (is(kind, Kind::head)) {
        module->pairs.push_back(make_pair(base, 0, Projection::head, rank, numbers));
        module->outputs.push_back(
            {0, Projection::head, numbers.draw(base.vocab_size), false, numbers.draw(base.vocab_size)});
        HeadRows rows;
        for (TokenId token = 2; token < base.vocab_size; token += 5) rows.tokens.push_back(token);
        rows.rows = numbers.draw(static_cast<int>(rows.tokens.size()) * hidden);
        module->head_rows = rows;
    }
    if (is(kind, Kind::prompt)) module->prompt = SoftPrompt{4, numbers.draw(4 * hidden)};
    for (const LowRankPair& pair : module->pairs) module->max_rank = std::max(module->max_rank, pair.rank);
    return module;
}

}  // namespace attune::testing
