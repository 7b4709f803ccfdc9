#pragma once

#include "attune/clock.hpp"
#include "attune/result.hpp"
#include "engine/job.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"
#include "engine/prompt_rows.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

class BaseAudit;
class Tokenizer;

struct EngineOptions {
    std::filesystem::path model;
    std::string device = "auto";
    std::string dtype = "auto";       ///< auto | f32 | bf16 | int8 | int4
    std::string kernels = "auto";     ///< auto | torch (the reference path)
    std::string activations = "f32";  ///< f32 | bf16: what products of bfloat16 weights multiply
    int max_context = 0;              ///< 0: the model's
    std::uint64_t kv_bytes = 0;       ///< 0: chosen from max_sequences and the context
    bool prefix_cache = true;         ///< keys and values outlive their request, for others that begin the same way
    int max_sequences = 64;
    int step_tokens = 512;
    std::uint64_t module_bytes = 256ull << 20;
    std::string slot_dtype = "bf16";
    int max_rank = 64;
    std::string apply = "batched";      ///< batched | merged | auto: how modules are put on the base
    std::int64_t drain_ms = 200;        ///< how long a merged set may go on while another request waits
    std::string restore_from = "file";  ///< file | clone: where merged weights come back from
    double slo_itl_ms = 0;              ///< steps that decode are kept shorter, by fewer rows of prompts; 0: no goal
    /// A request that loses all its blocks gives its slots back, too (StepReport::parked), and waits for resume().
    bool park_preempted = false;
    int threads = 0;                  ///< 0: all cores
    std::vector<TokenId> end_tokens;  ///< a sequence ends with any of them; empty: runs to max_tokens
    Now now = steady_now;
};

/// A request that left the engine since the last report. Every job given to add() is reported once, also a refused one.
struct EndedRequest {
    RequestId id{};
    Usage usage;
    std::string outcome;  ///< stop, length, cancelled, error
    double queue_ms = 0;
    double ttft_ms = 0;  ///< 0: no token came
    double e2e_ms = 0;
};

struct StepReport {
    int rows = 0;  ///< tokens computed
    int prompt_rows = 0;
    int generated = 0;  ///< tokens emitted
    int preempted = 0;
    std::vector<RequestId> parked;  ///< preempted whole: none of their modules' slots is needed before resume()
    std::vector<RequestId> wanted;  ///< parked, and there is room for them now: resume() them
    bool prompts_held = false;      ///< there was more of prompts to read, but for slo_itl_ms
    int prefix_queries = 0;         ///< prompt tokens looked up in the prefix cache, of requests that started
    int prefix_hits = 0;            ///< prompt tokens found there, of requests that gave their first token
    bool work_left = false;
    double seconds = 0;
    std::vector<EndedRequest> ended;
    std::vector<double> inter_token_seconds;  ///< one per emitted token but a choice's first
    std::string fault;                        ///< what a failed step threw, for the log; empty when all went well
    ApplyMode apply = ApplyMode::batched;     ///< how modules were put on the base for `generated`: never mixed
    int merges = 0;
    int restores = 0;
    double switch_seconds = 0;  ///< of merging and restoring; not in `seconds`
    std::string not_merged;     ///< why a set that was to be merged is not, for the log
    /// A tensor of the base is not what was loaded: nothing was computed, and nothing may be before restore_base().
    std::optional<Error> damage;
};

struct EngineStats {
    int running = 0;  ///< requests with blocks
    int waiting = 0;
    int free_blocks = 0;    ///< cached ones included: they are taken when no other is left
    int cached_blocks = 0;  ///< in the prefix cache, held by requests or by none
    int total_blocks = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t slot_capacity_bytes = 0;
    std::uint64_t weight_bytes = 0;     ///< copies for restoring included
    bool can_merge = true;              ///< false: the base's weights are quantised, modules act row by row
    bool merged = false;                ///< a set of modules lies in the base's weights
    std::vector<SlotId> merged_slots;   ///< that set
    std::vector<PromptRows> prompts;    ///< by priority
    double prompt_rows_per_second = 0;  ///< all in all, lately; 0: not known yet
};

/// Owns the model, the KV pool, the module slots and all sequences. One thread only (the executor's). Torch-free here;
/// engine.cpp holds the tensors. No exception leaves step(): a batch that throws fails its own requests.
class Engine {
public:
    /// `tokenizer` may be null: token-id prompts only, texts stay empty.
    static Result<std::unique_ptr<Engine>> open(const EngineOptions& options,
                                                std::shared_ptr<const Tokenizer> tokenizer);
    virtual ~Engine() = default;

    virtual const ModelShape& shape() const = 0;
    virtual std::shared_ptr<BaseAudit> audit() const = 0;
    /// The base's own values, for ModuleLimits; null when the model was not read from files. Outlives the engine.
    virtual std::shared_ptr<const BaseValues> base_values() const = 0;
    virtual EngineStats stats() const = 0;
    /// Bytes of slot arena a module takes, for budgets.
    virtual std::uint64_t slot_bytes(const Module& module) const = 0;

    /// Takes the job over. Every outcome is told to its sink; a job that can never run fails at once.
    virtual void add(JobPtr job) = 0;
    /// Frees its blocks now; its sink gets ChoiceFinished{cancelled} and Finished. Unknown ids are ignored.
    virtual void cancel(RequestId id) = 0;
    /// admit -> schedule -> forward -> sample -> emit.
    virtual StepReport step() = 0;
    /// True until every job has ended, or waits for its revision or for resume(), and step() has reported those that
    /// ended.
    virtual bool has_work() const = 0;
    /// The job has not ended.
    virtual bool has_job(RequestId id) const = 0;

    /// Between steps. Nothing changes when they fail. A prefix takes blocks of the KV pool for as long as it is
    /// installed; Errc::no_room when they are not free, or the longest request would no longer fit.
    virtual Result<SlotId> install(const ModulePtr& module) = 0;
    /// The same for about so long: nothing when there is more to do, to be asked again between later steps. Until it is
    /// done no other module is installed.
    virtual Result<std::optional<SlotId>> install_some(const ModulePtr& module, double seconds) = 0;
    virtual void remove(SlotId slot) = 0;
    /// ModuleSlots::prepare_slots, between two steps.
    virtual Result<std::string> prepare_slots(int target_rank, std::string_view when_captured = "error") = 0;
    /// Cold policy `upgrade`: from the next step on, all choices of `id` are made by `modules`; the context so far is
    /// prefilled again under them. False: the request is gone, too long to switch, or the modules cannot act
    /// together; the base goes on.
    /// A job with `revise` makes its whole answer again instead (Revised), also one that had come to its end. False
    /// then keeps what the base makes or made, as stop_waiting() does.
    virtual bool switch_modules(RequestId id, std::vector<JobModule> modules) = 0;
    /// The modules of a parked request are in these slots now: it goes on where it was. False: it is gone, or ended
    /// by it.
    virtual bool resume(RequestId id, std::vector<JobModule> modules) = 0;
    /// The base's answer waits for its revision no longer: it is told as it is when it comes, or came, to its end.
    virtual void stop_waiting(RequestId id) = 0;

    /// Between steps: forgets all cached keys and values. Requests that run keep theirs, which nobody will share; one
    /// that is read again from its first token shares again.
    virtual void drop_prefix_cache() = 0;

    /// Between steps, after the audit found these tensors (as audit() counts them) changed: each is written as it was
    /// loaded, and verified. Everything that was computed is dropped; requests that got a token since `good`, the last
    /// moment at which all of them were right, end with Errc::base_damaged, the others are computed again. Errors name
    /// what could not be restored: then nothing may be computed any more.
    virtual Result<void> restore_base(const std::vector<std::size_t>& tensors, TimePoint good) = 0;
};

}  // namespace attune
