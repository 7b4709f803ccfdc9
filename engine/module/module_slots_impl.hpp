#pragma once

// What the files behind ModuleSlots share: the table, its memory, and the loops over a plan's rows. One file per effect
// (apply_*.cpp) implements it, for the kernels and for libtorch.

#include "engine/kernels/lora.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/module/arena.hpp"
#include "engine/module/module_slots.hpp"
#include "engine/module/slot_plan.hpp"
#include "engine/weights/row_buffer.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace attune {

// Rows that one task of the kernel path takes: few enough to split a prompt over threads, enough to reuse A and B.
constexpr int kTaskRows = 8;
// Multiply-adds below which a second thread costs more than it saves.
constexpr std::int64_t kParallelWork = 200'000;

struct ModuleSlots::Impl {
    struct Slot {
        ModulePtr module;
        std::unique_ptr<SlotContent> content;  // stays at its address: plans point to it
        ModulePtr stored;                      // what content speaks of: the module, or a copy with padded pairs
    };

    /// A plan and what it was made of.
    class KeptPlan {
    public:
        bool fits(const Batch& batch, std::span<const std::int32_t> rows) const {
            return plan && segment_rows_ == batch.segment_rows && segment_offsets_ == batch.segment_offsets &&
                   segment_slots_ == batch.segment_slots && segment_combine_ == batch.segment_combine &&
                   std::equal(rows.begin(), rows.end(), rows_.begin(), rows_.end());
        }
        void keep(const Batch& batch, std::span<const std::int32_t> rows, std::shared_ptr<const SlotPlan> made) {
            segment_rows_ = batch.segment_rows;
            segment_offsets_ = batch.segment_offsets;
            segment_slots_ = batch.segment_slots;
            segment_combine_ = batch.segment_combine;
            rows_.assign(rows.begin(), rows.end());
            plan = std::move(made);
        }

        std::shared_ptr<const SlotPlan> plan;

    private:
        std::vector<std::int32_t> segment_rows_, segment_offsets_;
        std::vector<SlotWeight> segment_slots_;
        std::vector<Combine> segment_combine_;
        std::vector<std::int32_t> rows_;
    };

    Impl(const ModelShape& model_shape, const Options& slot_options, torch::Device on);

    // ---- the table

    Result<void> check(const Module& module) const;
    /// The module as these slots hold it.
    ModulePtr stored_form(const ModulePtr& module) const;
    bool must_pad(const Module& module) const;
    void fill_some(std::span<const SlotArray> arrays);
    std::size_t element_bytes() const { return c10::elementSize(options.dtype); }
    /// False, and nothing taken, when the arena has no place for all of it.
    bool take(SlotContent& content);
    void give(const SlotContent& content);
    void fill(const SlotArray& array);
    SlotPlan::Levels levels_of(std::span<const RowSegment> segments) const;
    std::shared_ptr<const SlotPlan> plan(std::vector<RowSegment> segments) const;
    /// The plan's lists by site.
    void list_sites(SlotPlan& plan) const;
    /// What slots hold has changed: plans of before are of no use.
    void changed() {
        whole_step = {};
        some_rows = {};
    }

    // ---- the memory

    /// On the kernel path only: the arena's bytes are the CPU's.
    const void* bytes(const SlotContent& content, int array) const {
        return array == SlotContent::kNone ? nullptr : memory.data_ptr<std::uint8_t>() + content.array(array).offset;
    }
    const float* floats(const SlotContent& content, int array) const {
        return static_cast<const float*>(bytes(content, array));
    }
    const std::int32_t* ids(const SlotContent& content, int array) const {
        return static_cast<const std::int32_t*>(bytes(content, array));
    }
    /// [rows, columns] as it is stored; floats of one row are a vector; panels come as [columns, rows] (a copy where
    /// they are packed).
    torch::Tensor tensor(const SlotContent& content, int array) const;
    /// The same in float32.
    torch::Tensor values(const SlotContent& content, int array) const;

    // ---- which path

    /// Our loops can write into `t`: no gradients, float32, rows of one run.
    bool writes(const torch::Tensor& t) const;
    void put_on_device(SlotPlan::Group& group) const;

    // ---- the effects

    void pairs_kernels(int layer, std::span<const Product> products, const torch::Tensor& x,
                       const SlotPlan& plan) const;
    torch::Tensor pairs_torch(std::size_t site, const torch::Tensor& x, const torch::Tensor& y,
                              const SlotPlan& plan) const;

    torch::Tensor scaled_input(std::size_t site, const torch::Tensor& x, const SlotPlan& plan) const;
    torch::Tensor norm_kernels(std::size_t site, const torch::Tensor& weight, const torch::Tensor& all,
                               const SlotPlan& plan) const;
    void terms_kernels(std::size_t site, const torch::Tensor& x, const torch::Tensor& y, const SlotPlan& plan,
                       const BaseProduct& base) const;
    torch::Tensor terms_torch(std::size_t site, const torch::Tensor& x, const torch::Tensor& y, const SlotPlan& plan,
                              const BaseProduct& base) const;

    void embedding_kernels(std::span<const TokenId> tokens, torch::Tensor& x, const SlotPlan& plan) const;
    /// What is left of a site's terms when its gains lie in the base: added values, and gains on the base's bias.
    torch::Tensor terms_merged(std::size_t site, const torch::Tensor& y, const SlotPlan& plan, const BaseProduct& base,
                               bool in_place) const;

    torch::Tensor embedding_torch(std::span<const TokenId> tokens, const torch::Tensor& x, const SlotPlan& plan) const;

    void new_head_kernels(const SlotContent& content, float weight, const PlannedSegment& segment,
                          const torch::Tensor& hidden, int count, torch::Tensor& logits) const;
    void head_rows_kernels(const torch::Tensor& x, torch::Tensor& y, const SlotPlan& plan) const;
    torch::Tensor head_rows_torch(const torch::Tensor& x, const torch::Tensor& y, const SlotPlan& plan) const;

    void states_kernels(int layer, torch::Tensor& x, torch::Tensor& delta, const SlotPlan& plan) const;
    torch::Tensor states_torch(int layer, const torch::Tensor& x, const SlotPlan& plan) const;

    /// Runs `call` (whose rows, weights and x are set) over `count` tasks, on all threads when `work` multiply-adds are
    /// worth it. No two tasks write the same value.
    template <class Task>
    void run_tasks(std::int64_t count, std::int64_t work, const Task& task) const {
        const auto share = [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) task(i);
        };
        if (work < kParallelWork) {
            share(0, count);
        } else {
            parallel_for(count, 1, share);
        }
    }

    /// Floats of this thread's own, kept from call to call. `use` tells users that hold one each at a time apart.
    static float* scratch(std::size_t count, int use = 0);

    /// piece(segment, its rows of t) for the segments that `acts` on, the other rows of t as they are: without writing.
    template <class Acts, class Piece>
    static torch::Tensor by_segment(const torch::Tensor& t, const SlotPlan& plan, Acts&& acts, Piece&& piece) {
        std::vector<torch::Tensor> pieces;
        std::int64_t done = 0;
        for (const PlannedSegment& segment : plan.segments) {
            if (!segment.any(acts)) continue;
            if (segment.first > done) pieces.push_back(t.narrow(0, done, segment.first - done));
            pieces.push_back(piece(segment, t.narrow(0, segment.first, segment.rows)));
            done = segment.first + segment.rows;
        }
        if (done < t.size(0)) pieces.push_back(t.narrow(0, done, t.size(0) - done));
        return torch::cat(pieces);
    }

    ModelShape shape;
    Options options;
    torch::Device device;
    bool kernels;
    Arena arena;
    torch::Tensor memory;  // [device_bytes], uint8
    std::vector<Slot> slots;
    struct Filling {
        Slot slot;
        std::size_t next = 0;  ///< of its arrays
    };
    std::optional<Filling> filling;  ///< no slot yet
    bool merged_layers = false;
    bool merged_head = false;
    int prepared_rank = 0;  ///< 0: not prepared
    bool captured = false;

    KeptPlan whole_step, some_rows;  // of the last step
    // On the kernel path: a norm's weights row by row, by place in the layer, and inputs of base_input(), by
    // projection. (Each is used up before its place in the next layer asks again.)
    mutable std::array<RowBuffer, SlotContent::kNormSites + 1> norm_rows;
    mutable std::array<RowBuffer, kProjections + 1> scaled_rows;
};

}  // namespace attune
