#pragma once

#include "attune/result.hpp"
#include "engine/model/model.hpp"
#include "engine/module/module.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace attune {

/// A module of a merged set, and its weight.
struct MergedModule {
    ModulePtr module;
    float weight = 1.0F;
};

/// Puts modules' changes of linear layers into a model's weights, in place, and takes them out again by copy: low-rank
/// and dense changes, and gains on a layer's outputs and inputs. What else a module does stays with its rows, and so
/// does what it changes of a head that is the embedding too. Between steps; the executor's thread.
class BaseMerge {
public:
    /// `keep_copies`: what a merge changes is restored from copies in memory instead of from the files.
    BaseMerge(Model& model, bool keep_copies) : model_(&model), keep_copies_(keep_copies) {}

    /// False for what acts on some rows only (an aLoRA), and for a saved head, whole or some rows of it.
    static bool can_merge(const Module& module);
    /// Bytes of the weights that a merge would change; 0: nothing to merge.
    std::uint64_t touched_bytes(std::span<const MergedModule> modules) const;

    /// W (1 + gains) + sum of weight * scale * B A in float32, rounded once into the weight's dtype. Nothing may be
    /// merged yet. All or nothing: values are looked at before the first is written, and after a later error everything
    /// is as it was. Errc::invalid_module for a module whose values are not finite, Errc::base_damaged for a tensor
    /// that was not as loaded, or could not be restored.
    Result<void> merge(std::span<const MergedModule> modules);
    /// Every changed tensor as it was loaded. Those that cannot be restored are told and stay changed.
    Result<void> restore();

    /// What the copies take when all weights have been changed once; 0 without them.
    std::uint64_t copy_bytes() const;

    bool is_merged() const { return !changed_.empty(); }
    /// Weights of the head changed, too.
    bool is_head_merged() const { return head_merged_; }

private:
    struct Site;  // all that is done to one matrix

    std::vector<Site> sites_of(std::span<const MergedModule> modules) const;

    Model* model_;
    bool keep_copies_;
    std::vector<Model::ProjectionWeight> changed_;
    bool head_merged_ = false;
};

}  // namespace attune
