#pragma once

#include "engine/module/slot_content.hpp"
#include "engine/module/slot_groups.hpp"

#include <torch/torch.h>

#include <optional>
#include <vector>

namespace attune {

/// A module on some rows, as the effects see it.
struct PlannedModule {
    const SlotContent* content = nullptr;
    float weight = 1.0F;
};

/// Consecutive rows with the same modules.
struct PlannedSegment {
    int first = 0;
    int rows = 0;
    std::vector<PlannedModule> modules;
    Combine combine = Combine::sequence;

    /// One of the modules does what `acts(content)` asks for.
    template <class Acts>
    bool any(Acts&& acts) const {
        for (const PlannedModule& module : modules)
            if (acts(*module.content)) return true;
        return false;
    }
};

/// A step's rows in both orders that the effects want: by slot, so that products with few rows each share a module's
/// matrices; and as segments, for what is done element by element. Built once per step, used by every layer.
class SlotPlan {
public:
    struct Group : SlotGroup {
        const SlotContent* content = nullptr;
        torch::Tensor index;   // [rows], int64 on the device; libtorch path only
        torch::Tensor column;  // [rows, 1], the weights, float32 on the device; libtorch path only
    };
    using Levels = std::vector<std::vector<Group>>;

    Levels levels;
    std::vector<PlannedSegment> segments;
    /// Where a segment asks for parallel or interpolated states: the levels of all other segments.
    std::optional<Levels> sequence_levels;

    const Levels& state_levels() const { return sequence_levels ? *sequence_levels : levels; }

    // Whether any row is touched there: most steps skip most effects.
    std::vector<bool> pairs;   // [site]
    std::vector<bool> terms;   // [site], outputs and inputs
    std::vector<bool> inputs;  // [site]
    std::vector<bool> norms;   // [norm site]
    std::vector<bool> states;  // [layer]
    bool embedding = false;    ///< soft prompts too
    bool head_rows = false;

    // Weights that hold the modules' changes already, see ModuleSlots::set_merged.
    bool merged_layers = false;
    bool merged_head = false;
    bool is_merged(std::size_t site) const { return site == 0 ? merged_head : merged_layers; }
};

}  // namespace attune
