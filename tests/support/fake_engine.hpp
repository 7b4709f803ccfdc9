#pragma once

#include "engine/engine.hpp"
#include "engine/weights/base_audit.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attune {

/// Three small tensors of plain bytes with a hash one can read.
class FakeAudit final : public BaseAudit {
public:
    FakeAudit();
    std::size_t tensors() const override { return tensors_.size(); }
    const std::string& name(std::size_t tensor) const override { return tensors_[tensor].name; }
    std::uint64_t bytes(std::size_t tensor) const override { return tensors_[tensor].data.size(); }
    const std::string& expected(std::size_t tensor) const override { return tensors_[tensor].expected; }
    Progress hash_some(std::size_t tensor, std::uint64_t budget) override;
    const std::string& checkpoint() const override { return checkpoint_; }
    Result<void> restore(std::size_t tensor) override;
    void flip_bit(std::size_t tensor, std::uint64_t byte) override { tensors_[tensor].data[byte] ^= 1; }

    bool source_changed = false;  ///< nothing can be restored

    std::uint64_t hashed = 0;  ///< bytes, over all calls

private:
    struct Tensor {
        std::string name;
        std::string data;
        std::string expected;
        std::size_t done = 0;
        std::string so_far;
    };
    std::vector<Tensor> tensors_;
    std::string checkpoint_ = "sha256:base";
};

/// An engine one can compute in one's head: every step gives every request one token, whose text is `.` for the base
/// and the modules' names otherwise.
class FakeEngine final : public Engine {
public:
    explicit FakeEngine(std::uint64_t capacity = 1000);

    const ModelShape& shape() const override { return shape_; }
    std::shared_ptr<BaseAudit> audit() const override { return audit_; }
    std::shared_ptr<const BaseValues> base_values() const override { return nullptr; }
    EngineStats stats() const override;
    std::uint64_t slot_bytes(const Module& module) const override { return module.host_bytes; }

    void add(JobPtr job) override;
    void cancel(RequestId id) override;
    StepReport step() override;
    bool has_work() const override;
    bool has_job(RequestId id) const override { return running_.contains(id); }
    Result<SlotId> install(const ModulePtr& module) override;
    Result<std::optional<SlotId>> install_some(const ModulePtr& module, double seconds) override;
    void remove(SlotId slot) override;
    Result<std::string> prepare_slots(int, std::string_view) override { return std::string(); }
    bool switch_modules(RequestId id, std::vector<JobModule> modules) override;
    void drop_prefix_cache() override { ++cache_drops; }
    Result<void> restore_base(const std::vector<std::size_t>& tensors, TimePoint good) override;
    void stop_waiting(RequestId id) override;
    bool resume(RequestId id, std::vector<JobModule> modules) override;
    /// The next step takes the request's blocks, and finds room for it again after `steps_out` more. False: it has no
    /// modules, so nobody would notice.
    bool preempt(RequestId id, int steps_out = 0);
    std::vector<RequestId> computing() const;  ///< whom the next step gives a token

    // What tests look at and set.
    std::shared_ptr<FakeAudit> fake_audit() const { return audit_; }
    std::size_t running() const { return running_.size(); }
    std::size_t installed() const { return slots_.size(); }
    bool has_installed(const std::string& generation) const;
    int steps = 0;
    int installs = 0;
    int removes = 0;
    int switches = 0;
    int cache_drops = 0;
    int resumes = 0;
    std::vector<PromptRows> prompts;  ///< these three: what stats() says
    double prompt_rows_per_second = 0;
    std::vector<SlotId> merged_slots;
    std::string last_salt;                                ///< of the last job
    std::map<std::string, std::set<std::string>> owners;  ///< by module, of the last job or switch that had it
    std::vector<std::string> broken_rules;                ///< what a caller must never do, and did
    std::function<void()> before_step;                    ///< may throw
    int install_pieces = 1;                               ///< an install in pieces takes so many
    std::optional<Error> next_install;                    ///< the next install fails with it
    std::function<bool(const Module&)> has_no_place;      ///< an arena in pieces: true for what it has no place for
    std::optional<Error> next_damage;                     ///< the next step computes nothing and reports it
    std::vector<std::vector<std::size_t>> repairs;        ///< what was to be restored, each time
    std::vector<TimePoint> good_times;                    ///< likewise
    std::set<RequestId> told_damage;                      ///< requests that got tokens from the damage
    bool refuses_switch = false;
    bool refuses_jobs = false;  ///< add() fails the job at once

private:
    struct Running {
        JobPtr job;
        int made = 0;
        int before = 0;  ///< of `made`, by the answer that was made again
        bool expects_revision = false;
        bool waits = false;  ///< its answer has ended and expects its revision
        std::vector<ServedEntry> served;
        std::optional<int> out;  ///< preempted for so many steps more, or about to be
        bool parked = false;
        bool wanted = false;
        bool computes() const { return !waits && !parked; }
    };
    void settle_preempted(StepReport& report);
    void finish(Running& request, FinishReason reason);
    void note_owners(const std::vector<JobModule>& modules);
    bool in_use(SlotId slot) const;

    ModelShape shape_;
    std::shared_ptr<FakeAudit> audit_ = std::make_shared<FakeAudit>();
    std::uint64_t capacity_;
    std::uint64_t used_ = 0;
    std::int32_t next_slot_ = 0;
    ModulePtr installing_;
    int pieces_done_ = 0;
    std::map<RequestId, Running> running_;
    std::map<SlotId, ModulePtr> slots_;
    std::vector<EndedRequest> ended_;
};

}  // namespace attune
