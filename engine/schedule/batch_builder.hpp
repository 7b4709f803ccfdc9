#pragma once

#include "engine/schedule/batch.hpp"
#include "engine/schedule/scheduler.hpp"

namespace attune {

/// Writes a plan down as the Batch of one forward pass; `batch` keeps its capacity from step to step.
void build_batch(const StepPlan& plan, Batch& batch);

}  // namespace attune
