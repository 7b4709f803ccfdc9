#pragma once

#include "engine/module/module.hpp"

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace attune {

/// Names of projections on the command line, in the order of Projection.
inline constexpr char kLetters[] = "qkvogud";

class RandomValues {
public:
    RandomValues(unsigned seed, float most) : random_(seed), uniform_(-most, most) {}
    std::vector<float> draw(int count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values) value = uniform_(random_);
        return values;
    }

private:
    std::mt19937 random_;
    std::uniform_real_distribution<float> uniform_;
};

/// A module of random values in [-most, most]. kind: lora, dora (with gains), miss (shards), on the projections whose
/// letters are given, in every layer; state (a bottleneck of width 256 on the 8 layers in the middle); prefix (32
/// tokens).
inline ModulePtr make_module(const ModelShape& shape, int rank, const std::string& projections, unsigned seed,
                             float most, const std::string& kind = "lora") {
    RandomValues random(seed, most);
    auto module = std::make_shared<Module>();
    module->id.name = "m" + std::to_string(seed);
    if (kind == "prefix") {
        constexpr int kTokens = 32;
        const int values = shape.layer_count() * kTokens * shape.kv_heads * shape.head_dim;
        module->prefix = PrefixSegment{kTokens, random.draw(values), random.draw(values)};
        return module;
    }
    if (kind == "state") {
        constexpr int kWidth = 256;
        constexpr int kLayers = 8;
        const int first = (shape.layer_count() - kLayers) / 2;
        for (int layer = first; layer < first + kLayers; ++layer) {
            StateLayer state;
            state.layer = layer;
            state.kind = StateKind::bottleneck;
            state.activation = Activation::tanh;
            state.width = kWidth;
            state.down = random.draw(kWidth * shape.hidden_size);
            state.down_bias = random.draw(kWidth);
            state.up = random.draw(kWidth * shape.hidden_size);
            state.up_bias = random.draw(shape.hidden_size);
            module->states.push_back(std::move(state));
        }
        return module;
    }
    module->max_rank = rank;
    for (int layer = 0; layer < shape.layer_count(); ++layer)
        for (int i = 0; i < kProjections; ++i) {
            if (projections.find(kLetters[i]) == std::string::npos) continue;
            const auto projection = static_cast<Projection>(i);
            LowRankPair pair{layer, projection, rank, 1.0F, {}, {}};
            if (kind != "miss") pair.a = random.draw(rank * shape.in_features(projection));
            pair.b = random.draw(rank * shape.out_features(projection));
            module->pairs.push_back(std::move(pair));
            if (kind == "dora")
                module->outputs.push_back({layer, projection, random.draw(shape.out_features(projection)), false, {}});
        }
    return module;
}

}  // namespace attune
