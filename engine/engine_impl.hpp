#pragma once

#include "engine/acting_modules.hpp"
#include "engine/engine.hpp"
#include "engine/kv/block_pool.hpp"
#include "engine/kv/kv_cache.hpp"
#include "engine/model/base_merge.hpp"
#include "engine/model/model.hpp"
#include "engine/module/module_slots.hpp"
#include "engine/running_job.hpp"
#include "engine/sample/sampler.hpp"
#include "engine/schedule/apply_policy.hpp"
#include "engine/schedule/batch_builder.hpp"
#include "engine/schedule/scheduler.hpp"
#include "engine/schedule/step_cost.hpp"

#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

/// Where the tensors lie and how they are stored, once the options' words are understood.
struct EngineLayout {
    torch::Device device = torch::kCPU;
    torch::Dtype kv_dtype = torch::kFloat32;
    torch::Dtype slot_dtype = torch::kFloat32;
    int kv_blocks = 0;
    bool torch_kernels = false;  ///< the libtorch reference path everywhere (model.kernels = torch)
    bool bf16_activations = false;
    ApplyWish apply = ApplyWish::batched;
};

/// An engine over any Model. Engine::open makes one from files; tests bring models of their own.
std::unique_ptr<Engine> make_engine(std::unique_ptr<Model> model, const EngineOptions& options,
                                    const EngineLayout& layout, std::shared_ptr<const Tokenizer> tokenizer);

class EngineImpl final : public Engine {
public:
    EngineImpl(std::unique_ptr<Model> model, const EngineOptions& options, const EngineLayout& layout,
               std::shared_ptr<const Tokenizer> tokenizer);
    ~EngineImpl() override;

    const ModelShape& shape() const override { return shape_; }
    std::shared_ptr<BaseAudit> audit() const override { return model_->audit(); }
    std::shared_ptr<const BaseValues> base_values() const override { return model_->base_values(); }
    EngineStats stats() const override;
    std::uint64_t slot_bytes(const Module& module) const override;

    void add(JobPtr job) override;
    void cancel(RequestId id) override;
    StepReport step() override;
    bool has_work() const override { return jobs_.size() > waiting_jobs_ + wanted_jobs_ || !ended_.empty(); }
    bool has_job(RequestId id) const override { return jobs_.contains(id); }

    Result<SlotId> install(const ModulePtr& module) override;
    Result<std::optional<SlotId>> install_some(const ModulePtr& module, double seconds) override;
    void remove(SlotId slot) override;
    Result<std::string> prepare_slots(int target_rank, std::string_view when_captured) override {
        return slots_.prepare_slots(target_rank, when_captured);
    }
    bool switch_modules(RequestId id, std::vector<JobModule> modules) override;
    bool resume(RequestId id, std::vector<JobModule> modules) override;
    void drop_prefix_cache() override;
    Result<void> restore_base(const std::vector<std::size_t>& tensors, TimePoint good) override;
    void stop_waiting(RequestId id) override;

private:
    /// A row whose logits the step wants, remembered by ids: its job may end before its turn.
    struct LogitRow {
        RequestId request{};
        int choice = 0;
        int token = 0;         ///< its place in the sequence, virtual tokens not counted
        bool is_last = false;  ///< of its sequence: the next token is drawn from it
    };

    /// A token that was drawn before its row's turn.
    struct Draw {
        std::size_t row = 0;  ///< within the logits at hand
        SampleContext context;
        Sample sample = {};
    };

    // engine.cpp: a step
    void run_step(StepReport& report);
    void apply_waiting_switches();
    void end_overdue();
    void note_starts(const StepPlan& plan, StepReport& report);
    void fail_step(const std::string& fault, StepReport& report);
    Scheduler::PromptRows prompt_rows() const;
    void note_parked(const StepPlan& plan, StepReport& report);

    // engine_logits.cpp: its tokens
    void list_logit_rows(const StepPlan& plan);
    void read_logits(const torch::Tensor& hidden, StepReport& report);
    int added_ids(const std::vector<JobModule>& modules) const;
    torch::Tensor new_token_logits(const torch::Tensor& hidden, std::size_t first, std::span<const std::int32_t> rows);
    std::span<const float> with_new_tokens(const LogitRow& row, std::span<const float> known,
                                           const torch::Tensor& beyond);
    std::shared_ptr<const Tokenizer> tokenizer_of(const std::vector<JobModule>& modules) const;
    void draw_ahead(const float* logits, std::size_t first, std::size_t count);
    void use_row(const LogitRow& row, std::span<const float> logits, Sample* drawn, StepReport& report);
    /// False when the job ended by it.
    bool score_prompt_row(RunningJob& running, int token, std::span<const float> logits);
    void draw_first_tokens(RunningJob& running, std::span<const float> logits, StepReport& report);
    static bool is_first_of_many(const RunningJob& running, const Choice& choice);
    static SampleContext context_of(const RunningJob& running, const Choice& choice);
    Sampler& thread_sampler() const;
    Sample draw(const RunningJob& running, const Choice& choice, std::span<const float> logits) const;
    void use_sample(RunningJob& running, Choice& choice, Sample sample, StepReport& report);
    void accept_token(RunningJob& running, Choice& choice, Sample sample, StepReport& report);

    // engine_apply.cpp: modules merged into the base, and a base that has to be repaired
    /// False when the base is damaged: no step.
    bool settle_apply(StepReport& report);
    ApplyPolicy::Demand demand();
    std::vector<MergedModule> modules_of(const ModuleSet& set) const;
    std::uint64_t merge_bytes(const ModuleSet& set);
    void merge(const ModuleSet& set, std::uint64_t bytes, StepReport& report);
    void restore_merged(StepReport& report);
    /// The slot is being emptied.
    void forget_merged(SlotId slot);
    Scheduler::MayRun who_may_run() const;
    void note_apply(const StepPlan& plan, StepReport& report);
    /// How these modules are put on the base now.
    ApplyMode mode_of(const SequenceModules& modules) const;

    // engine_jobs.cpp: how jobs begin and end
    void admit(JobPtr job);
    void begin(RunningJob& running);
    void complete(Job& job, const VirtualTokens& virtual_tokens) const;
    Result<SequenceModules> check(Job& job) const;
    Result<SequenceModules> acting(const Job& job, const std::vector<JobModule>& modules) const;
    Result<void> check_room(const Job& job, const SequenceModules& modules) const;
    std::int64_t blocks_alone(const Job& job, const VirtualTokens& virtual_tokens) const;
    /// Blocks that requests can have: all but those of prefixes.
    std::int64_t blocks_left() const { return std::int64_t{pool_.total_blocks()} - prefix_blocks_; }
    Result<void> give_prefix(SlotId slot, const PrefixSegment& prefix);
    void refuse(Job& job, Error error);
    void apply_switch(RunningJob& running, RunningJob::Switch to);
    void finish_choice(RunningJob& running, Choice& choice, FinishReason reason,
                       std::variant<std::monostate, std::string, TokenId> stop_reason);
    void finish_prompt_only(RunningJob& running);
    /// Every choice has ended.
    void conclude(RunningJob& running, std::string_view outcome);
    void note_overlaps(RunningJob& running) const;
    void fail(RunningJob& running, Error error);
    void fail_non_finite(RunningJob& running, const std::string& which);
    void leave(RunningJob& running, std::string_view outcome);
    RunningJob* find(RequestId id);

    // revise.cpp
    bool revise(RunningJob& running, std::vector<JobModule> modules);
    void leave_waiting(RunningJob& running);
    void leave_wanted(RunningJob& running);

    EngineOptions options_;
    std::unique_ptr<Model> model_;
    ModelShape shape_;  ///< the model's, with the context this engine serves
    std::shared_ptr<const Tokenizer> tokenizer_;
    KvCache kv_;
    ModuleSlots slots_;
    torch::Dtype slot_dtype_;
    ModulePtr installing_;  // a part of it is in the slots
    BlockPool pool_;
    std::map<SlotId, BlockTable> prefixes_;  ///< their keys and values, held as long as the module is resident
    int prefix_blocks_ = 0;                  ///< of pool_, in prefixes_
    Scheduler scheduler_;
    BaseMerge merge_;
    ApplyPolicy apply_;
    std::vector<std::pair<ModuleSet, std::uint64_t>> merge_bytes_;  // of sets that were asked for
    std::vector<float> wide_row_;                                   // a row with the logits of its new tokens
    StepReport untold_;                                             // what restoring took between steps: next report
    std::optional<Error> damage_;                                   // told with the next report
    std::map<RequestId, std::unique_ptr<RunningJob>> jobs_;         // dies before pool_, which gets its blocks back
    std::size_t waiting_jobs_ = 0;  // of jobs_: their answer has ended and waits for its revision
    std::size_t wanted_jobs_ = 0;   ///< of jobs_: parked, and told so
    StepCost cost_;
    PromptRate prompt_rate_;
    std::uint64_t arrivals_ = 0;
    Batch batch_;                        // of the current step
    std::vector<LogitRow> logit_rows_;   // of the current step
    std::vector<Draw> draws_;            // of the logits at hand, by row
    std::set<RequestId> step_requests_;  // with rows in the current step
    std::vector<EndedRequest> ended_;    // since the last report
};

}  // namespace attune
