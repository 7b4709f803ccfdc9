#pragma once

#include "engine/module/module.hpp"
#include "engine/weights/weight.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// Where a source tensor belongs: which weight, which part of it, and the shape the config asks for.
struct WeightPlace {
    std::shared_ptr<Weight> weight;
    std::size_t part = 0;
    std::vector<std::int64_t> shape;
};

/// BaseValues over the files that the weights were filled from. `table_dtype` and `table_quant`: what embedding and
/// head are resident in.
std::shared_ptr<const BaseValues> source_values(std::map<std::string, WeightPlace> places, torch::Dtype table_dtype,
                                                Quant table_quant);

}  // namespace attune
