#pragma once

#include "attune/result.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"
#include "engine/schedule/batch.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace attune {

class ReadAhead;
/// A step's rows grouped by slot; built once per step by ModuleSlots::plan and used by every layer.
class SlotPlan;

/// The resident modules: a table of (layer, projection) -> fragment per slot. Fragments lie in one arena of
/// `device_bytes`, allocated at construction: bytes run out, not slots. Called by the executor's thread only.
///
/// What acts on rows is a sum of deltas, each times the module's weight in the request; rows without modules keep their
/// bits, and on the CPU's kernels no row's bits depend on the other rows. There and in inference mode results may be
/// the arguments, written in place; with gradients the libtorch path is taken, which writes nothing.
class ModuleSlots {
public:
    struct Options {
        std::uint64_t device_bytes = 0;
        torch::Dtype dtype = torch::kFloat32;  ///< how matrices are stored; vectors are float32
        int max_rank = 64;
        bool torch_kernels = false;  ///< the libtorch path on the CPU too: the reference
    };

    ModuleSlots(const ModelShape& shape, const Options& options, torch::Device device);
    ~ModuleSlots();

    /// Arena bytes a module takes in slots that are not prepared. A prefix takes none: it lies in the cache.
    static std::uint64_t bytes_needed(const Module& module, torch::Dtype dtype);
    /// Those it will take in these; what budgets reserve before install.
    std::uint64_t bytes_for(const Module& module) const;

    /// All or nothing; keeps a reference to the module. Errc::no_room when the arena has no place, Errc::invalid_module
    /// for a shape or rank it cannot hold.
    Result<SlotId> install(const ModulePtr& module);
    /// The same in pieces, for large modules; one at a time. The first reserves all of its place; the second writes
    /// until all is written, or `enough` (asked after a piece of about a MiB; may be null) says so: then nothing.
    Result<void> begin_install(const ModulePtr& module);
    std::optional<SlotId> go_on_installing(const std::function<bool()>& enough);
    /// Gives the place back; nothing when none was begun.
    void give_up_installing();
    /// The slot's bytes are free for the next install. The caller guarantees that no sequence uses it.
    void remove(SlotId slot);

    /// The changes that the modules of every row make to weights lie in the base itself now, or not any more: what else
    /// they do (biases, embeddings, norms, states, virtual tokens) stays. `with_head`: those of the head are in it,
    /// too. For the plans made from now on.
    void set_merged(bool merged, bool with_head);

    /// Every low-rank pair, of the modules that are resident and of those that come, gets the place of `target_rank`
    /// rows, so that no later swap changes a shape: what PEFT calls preparing for a compiled hotswap. Rows that are
    /// padded are zero, so the output is unchanged; scales come from the true rank, as before. A larger rank is refused
    /// from then on. Pairs that are shards have no rows to pad.
    /// `when_captured` says what to do when a device holds captured steps over the present shapes: "error", "warn" (the
    /// sentence is returned) or "ignore". Errors (nothing has changed then): Errc::invalid_argument with PEFT's words,
    /// Errc::no_room.
    Result<std::string> prepare_slots(int target_rank, std::string_view when_captured = "error");
    /// A device has captured steps over the slots as they are. (The CPU's kernels capture none; whoever records CUDA
    /// graphs over the slots says so here.)
    void mark_captured();

    const Module* module(SlotId slot) const;
    /// Shares what the slot holds; null for an empty one.
    ModulePtr share(SlotId slot) const;
    std::uint64_t used_bytes() const;
    std::uint64_t capacity_bytes() const;

    /// Valid until a slot of the batch is removed. The one of the call before while neither the batch's segments nor
    /// the slots have changed: a steady decode makes none.
    std::shared_ptr<const SlotPlan> plan(const Batch& batch) const;
    /// For a selection of the step's rows (ascending), counted by their place in it.
    std::shared_ptr<const SlotPlan> plan(const Batch& batch, std::span<const std::int32_t> rows) const;

    /// What stands before the sequence that begins at `row` of the step; null without.
    const PrefixSegment* prefix(const Batch& batch, int row) const;

    // ---- linear layers

    /// What the terms of a projection need of the base.
    struct BaseProduct {
        torch::Tensor bias;          // [out] float32, undefined without
        bool of_base_input = false;  ///< y is the product of base_input(), not of x
        /// The base's product of other inputs: [n, in] -> [n, out].
        std::function<torch::Tensor(const torch::Tensor&)> multiply;
    };

    /// What the base's product reads instead of x: x itself, or a copy whose touched rows are scaled (input terms). For
    /// projections that share their product with no other; at fused ones apply() multiplies such rows by themselves.
    torch::Tensor base_input(int layer, Projection projection, const torch::Tensor& x, const SlotPlan& plan) const;

    /// One of the projections that read the same input, and its base product.
    struct Product {
        Projection projection{};
        torch::Tensor* y = nullptr;
        BaseProduct base;
    };

    /// Every y becomes y and all that the modules of each row add to it (pairs, output and input terms; at the head its
    /// rows too), in one pass over the rows. x: [rows, in]; y: [rows, out], the base's product before its bias (may be
    /// a row-strided view of a fused output), float32 or bfloat16. The caller adds the bias afterwards; modules without
    /// terms never ask for `base`.
    void apply(int layer, std::span<const Product> products, const torch::Tensor& x, const SlotPlan& plan) const;
    /// Of one projection.
    torch::Tensor apply(int layer, Projection projection, const torch::Tensor& x, torch::Tensor y, const SlotPlan& plan,
                        const BaseProduct& base) const {
        const Product product{projection, &y, base};
        apply(layer, std::span(&product, 1), x, plan);
        return y;
    }
    /// Where no term asks for the base.
    torch::Tensor apply(int layer, Projection projection, const torch::Tensor& x, torch::Tensor y,
                        const SlotPlan& plan) const {
        return apply(layer, projection, x, std::move(y), plan, BaseProduct());
    }

    /// Adds what apply() will read of the modules, in its order. Nothing on the libtorch path.
    void add_reads(int layer, std::span<const Product> products, const SlotPlan& plan, ReadAhead& ahead) const;

    /// The plan touches a row of this layer; otherwise callers skip apply(). `layer` of the head: 0.
    bool touches(int layer, Projection projection, const SlotPlan& plan) const;
    /// One of the batch's modules acts on the head.
    bool touches_head(const Batch& batch) const;

    /// The logits of tokens that the base has no rows for, beside those of the head: [rows, count], float32, zero where
    /// a row's modules know fewer. hidden: [rows, hidden], row i being the step's row rows[i] (ascending).
    torch::Tensor new_token_logits(const torch::Tensor& hidden, const Batch& batch, std::span<const std::int32_t> rows,
                                   int count) const;

    // ---- the others

    /// x: [rows, hidden], the embeddings of the plan's rows (anything for virtual tokens); tokens: [rows]. Soft prompts
    /// are taken as they are, whatever the module's weight.
    torch::Tensor embed(std::span<const TokenId> tokens, torch::Tensor x, const SlotPlan& plan) const;
    bool touches_embedding(const SlotPlan& plan) const;

    /// A norm's weight for each of the step's `rows` rows: `weight` itself ([n]) where none is touched, else [rows, n].
    torch::Tensor norm_weight(int layer, NormSite site, const torch::Tensor& weight, std::int64_t rows,
                              const SlotPlan& plan) const;

    /// The states on the output h = x + delta of a decoder layer, both [rows, hidden]. Afterwards x + delta is h', with
    /// delta 0 in touched rows or undefined altogether.
    void apply_states(int layer, torch::Tensor& x, torch::Tensor& delta, const SlotPlan& plan) const;
    bool touches_output(int layer, const SlotPlan& plan) const;

    struct Impl;  // module_slots_impl.hpp

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace attune
