#pragma once

#include "attune/result.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"
#include "engine/schedule/batch.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <memory>

namespace attune {

/// A step's rows grouped by slot; built once per step by ModuleSlots::plan and used by every layer.
class SlotPlan;

/// The resident modules: a table of (layer, projection) -> fragment per slot. Fragments lie in one arena of
/// `device_bytes`, allocated at construction: bytes run out, not slots. Called by the executor's thread only.
class ModuleSlots {
public:
    struct Options {
        std::uint64_t device_bytes = 0;
        torch::Dtype dtype = torch::kFloat32;  ///< how A and B are stored
        int max_rank = 64;
        bool torch_kernels = false;  ///< the libtorch path on the CPU too: the reference
    };

    ModuleSlots(const ModelShape& shape, const Options& options, torch::Device device);
    ~ModuleSlots();

    /// Arena bytes a module will take; what budgets reserve before install.
    static std::uint64_t bytes_needed(const Module& module, torch::Dtype dtype);

    /// All or nothing; keeps a reference to the module. Errc::no_room when the arena has no place, Errc::invalid_module
    /// for a shape or rank it cannot hold.
    Result<SlotId> install(const ModulePtr& module);
    /// The slot's bytes are free for the next install. The caller guarantees that no sequence uses it.
    void remove(SlotId slot);

    const Module* module(SlotId slot) const;
    std::uint64_t used_bytes() const;
    std::uint64_t capacity_bytes() const;

    std::shared_ptr<const SlotPlan> plan(const Batch& batch) const;

    /// y + sum of weight * scale * ((x A^T) B^T) over the modules of each row; rows without modules keep their bits.
    /// x: [rows, in], y: [rows, out] (may be a row-strided view of a fused output), float32 or bfloat16.
    /// In inference mode on the CPU the result may be y itself, written in place; with gradients the torch path is used
    /// and y is left alone.
    torch::Tensor apply(int layer, Projection projection, const torch::Tensor& x, torch::Tensor y,
                        const SlotPlan& plan) const;

    /// The plan touches no row of this layer: callers skip apply().
    bool touches(int layer, Projection projection, const SlotPlan& plan) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace attune
