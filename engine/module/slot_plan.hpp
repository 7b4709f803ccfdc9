#pragma once

#include "engine/module/slot_content.hpp"
#include "engine/module/slot_groups.hpp"

#include <torch/torch.h>

#include <optional>
#include <span>
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

/// What a list has for every site, one site after the other.
template <class Entry>
class BySite {
public:
    /// Those added from here on are of the next site.
    void next_site() { ends_.push_back(entries_.size()); }
    void add(const Entry& entry) {
        entries_.push_back(entry);
        ++ends_.back();
    }
    std::span<const Entry> at(std::size_t site) const {
        const std::size_t begin = site == 0 ? 0 : ends_[site - 1];
        return std::span(entries_).subspan(begin, ends_[site] - begin);
    }

private:
    std::vector<Entry> entries_;
    std::vector<std::size_t> ends_;  // [sites]
};

/// A low-rank pair of a level's group, and where it lies.
struct PlannedPair {
    std::size_t group = 0;
    int rank = 0;
    float scale = 1.0F;
    const void* a = nullptr;
    const void* b = nullptr;
};

/// What a module does to a segment's rows element by element, and where it lies; null without.
struct PlannedTerm {
    std::size_t segment = 0;
    float weight = 1.0F;
    const float* gain = nullptr;   // [out]
    const float* add = nullptr;    // [out]
    const float* input = nullptr;  // [in]
    bool gain_on_bias = false;
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
    // The same for the kernels' inner loops: to look into every module at every site costs more than what is done
    // there. Ascending by group and by segment.
    std::vector<BySite<PlannedPair>> level_pairs;  // [level]
    BySite<PlannedTerm> site_terms;
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
