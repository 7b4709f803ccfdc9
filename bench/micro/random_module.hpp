#pragma once

#include "engine/module/module.hpp"

#include <memory>
#include <random>
#include <string>

namespace attune {

/// Names of projections on the command line, in the order of Projection.
inline constexpr char kLetters[] = "qkvogud";

/// A LoRA of random values in [-most, most] on the projections whose letters are given, in every layer.
inline ModulePtr make_module(const ModelShape& shape, int rank, const std::string& projections, unsigned seed,
                             float most) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-most, most);
    auto module = std::make_shared<Module>();
    module->id.name = "m" + std::to_string(seed);
    module->max_rank = rank;
    for (int layer = 0; layer < shape.layer_count(); ++layer)
        for (int i = 0; i < kProjections; ++i) {
            if (projections.find(kLetters[i]) == std::string::npos) continue;
            const auto projection = static_cast<Projection>(i);
            LowRankPair pair{layer, projection, rank, 1.0F, {}, {}};
            pair.a.resize(static_cast<std::size_t>(rank * shape.in_features(projection)));
            pair.b.resize(static_cast<std::size_t>(rank * shape.out_features(projection)));
            for (auto* values : {&pair.a, &pair.b})
                for (float& value : *values) value = uniform(random);
            module->pairs.push_back(std::move(pair));
        }
    return module;
}

}  // namespace attune
