#pragma once

#include "engine/weights/base_audit.hpp"
#include "engine/weights/weight.hpp"

#include <memory>
#include <string>
#include <vector>

namespace attune {

/// The audit over a model's weights: one entry per source tensor, in name order. Keeps the weights alive.
std::shared_ptr<BaseAudit> make_base_audit(const std::vector<std::shared_ptr<Weight>>& weights, std::string checkpoint);

}  // namespace attune
