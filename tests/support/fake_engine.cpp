#include "support/fake_engine.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune {

FakeAudit::FakeAudit() {
    for (const char* name : {"embed", "layers.0", "norm"}) {
        Tensor tensor{name, std::string(name) + " weights", {}, 0, {}};
        tensor.expected = "hash of " + tensor.data;
        tensors_.push_back(std::move(tensor));
    }
}

BaseAudit::Progress FakeAudit::hash_some(std::size_t index, std::uint64_t budget) {
    Tensor& tensor = tensors_[index];
    const std::size_t take = std::min<std::size_t>(budget, tensor.data.size() - tensor.done);
    tensor.so_far += tensor.data.substr(tensor.done, take);
    tensor.done += take;
    hashed += take;
    Progress progress{take, tensor.done == tensor.data.size(), {}};
    if (progress.complete) {
        progress.hash = "hash of " + tensor.so_far;
        tensor.done = 0;
        tensor.so_far.clear();
    }
    return progress;
}

Result<void> FakeAudit::restore(std::size_t index) {
    if (source_changed) return make_error(Errc::base_damaged, "the model file has changed");
    Tensor& tensor = tensors_[index];
    tensor.data = tensor.name + " weights";
    tensor.done = 0;
    tensor.so_far.clear();
    return {};
}

FakeEngine::FakeEngine(std::uint64_t capacity) : capacity_(capacity) {
    shape_.model_type = "llama";
    shape_.hidden_size = 8;
    shape_.vocab_size = 320;
    shape_.max_context = 4096;
    shape_.layers.resize(2);
}

EngineStats FakeEngine::stats() const {
    EngineStats stats;
    stats.running = static_cast<int>(running_.size());
    stats.total_blocks = 256;
    stats.free_blocks = 256 - stats.running;
    stats.slot_bytes = used_;
    stats.slot_capacity_bytes = capacity_;
    stats.prompts = prompts;
    stats.prompt_rows_per_second = prompt_rows_per_second;
    stats.merged_slots = merged_slots;
    return stats;
}

void FakeEngine::add(JobPtr job) {
    if (refuses_jobs) {
        EndedRequest ended;
        ended.id = job->id;
        ended.outcome = "error";
        ended_.push_back(std::move(ended));
        job->sink->push(Failed{make_error(Errc::context_exceeded, "it can never run")});
        return;
    }
    last_salt = job->cache_salt;
    note_owners(job->modules);
    for (const JobModule& module : job->modules)
        if (!slots_.contains(module.slot)) broken_rules.push_back("a job names a slot that holds nothing");
    job->sink->push(Admitted{job->cold, job->route, static_cast<int>(job->prompt.size())});
    const RequestId id = job->id;
    if (running_.contains(id)) broken_rules.push_back("one request was added twice");
    Running& added = running_[id];
    added.job = std::move(job);
    added.expects_revision = added.job->revise;
}

bool FakeEngine::has_work() const {
    return !ended_.empty() ||
           !std::ranges::all_of(running_, [](const auto& one) { return one.second.waits || one.second.wanted; });
}

void FakeEngine::finish(Running& request, FinishReason reason) {
    const Job& job = *request.job;
    if (!request.waits) job.sink->push(ChoiceFinished{0, reason, {}, {}});
    if (request.expects_revision && reason != FinishReason::cancelled) {
        request.waits = true;
        return;
    }
    Finished finished;
    finished.usage.prompt_tokens = static_cast<int>(job.prompt.size());
    finished.usage.completion_tokens = request.made;
    finished.served = request.served;
    job.sink->push(finished);
    EndedRequest ended;
    ended.id = job.id;
    ended.usage = finished.usage;
    ended.outcome = reason == FinishReason::cancelled ? "cancelled" : "length";
    ended.ttft_ms = 1;
    ended.e2e_ms = 2;
    ended_.push_back(std::move(ended));
}

void FakeEngine::cancel(RequestId id) {
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    Running request = std::move(found->second);
    running_.erase(found);
    finish(request, FinishReason::cancelled);
}

StepReport FakeEngine::step() {
    ++steps;
    if (before_step) before_step();
    StepReport report;
    if (next_damage) {
        report.damage = std::exchange(next_damage, std::nullopt);
        report.work_left = has_work();
        return report;
    }
    settle_preempted(report);
    std::vector<RequestId> done;
    for (auto& [id, request] : running_) {
        if (!request.computes()) continue;
        std::vector<AppliedModule> applied;
        std::string text;
        for (const JobModule& module : request.job->modules) {
            applied.push_back(module.applied);
            text += module.applied.id.name;
            const auto slot = slots_.find(module.slot);
            if (slot == slots_.end() || slot->second->id.generation != module.applied.id.generation)
                broken_rules.push_back("a token was made by a slot that holds something else");
        }
        const auto same = [&](const ServedEntry& entry) {
            return std::equal(
                entry.modules.begin(), entry.modules.end(), applied.begin(), applied.end(),
                [](const AppliedModule& a, const AppliedModule& b) { return a.id == b.id && a.weight == b.weight; });
        };
        if (request.served.empty() || !same(request.served.back())) request.served.push_back({0, applied, 0});
        ++request.served.back().tokens;
        ++request.made;
        ++report.generated;
        ++report.rows;
        request.job->sink->push(TokenEvent{0, 65, text.empty() ? "." : text, false, {}});
        if (request.made - request.before >= request.job->sampling.max_tokens.value_or(1)) {
            finish(request, FinishReason::length);
            if (!request.waits) done.push_back(id);
        }
    }
    for (const RequestId id : done) running_.erase(id);
    report.ended = std::exchange(ended_, {});
    report.work_left = has_work();
    return report;
}

bool FakeEngine::has_installed(const std::string& generation) const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const auto& slot) { return slot.second->id.generation == generation; });
}

Result<SlotId> FakeEngine::install(const ModulePtr& module) {
    if (next_install) return *std::exchange(next_install, std::nullopt);
    if (used_ + slot_bytes(*module) > capacity_) return make_error(Errc::no_room, "the arena is full");
    if (has_no_place && has_no_place(*module)) return make_error(Errc::no_room, "the arena is in pieces");
    for (const auto& [slot, other] : slots_)
        if (other->id.generation == module->id.generation) broken_rules.push_back("one content was installed twice");
    ++installs;
    used_ += slot_bytes(*module);
    const SlotId slot{next_slot_++};
    slots_[slot] = module;
    return slot;
}

Result<std::optional<SlotId>> FakeEngine::install_some(const ModulePtr& module, double seconds) {
    if (installing_ && installing_ != module) broken_rules.push_back("two modules were installed at a time");
    installing_ = module;
    if (std::isfinite(seconds) && ++pieces_done_ < install_pieces) return std::optional<SlotId>();
    installing_ = nullptr;
    pieces_done_ = 0;
    auto slot = install(module);
    if (!slot) return slot.error();
    return std::optional<SlotId>(*slot);
}

void FakeEngine::note_owners(const std::vector<JobModule>& modules) {
    for (const JobModule& module : modules)
        owners[module.applied.id.name] = {module.owners.begin(), module.owners.end()};
}

bool FakeEngine::in_use(SlotId slot) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& one) {
        const auto& modules = one.second.job->modules;
        return !one.second.parked && std::any_of(modules.begin(), modules.end(),
                                                 [&](const JobModule& module) { return module.slot == slot; });
    });
}

void FakeEngine::remove(SlotId slot) {
    if (in_use(slot)) broken_rules.push_back("a slot in use was removed");
    const auto found = slots_.find(slot);
    if (found == slots_.end()) {
        broken_rules.push_back("a slot was removed twice");
        return;
    }
    ++removes;
    used_ -= slot_bytes(*found->second);
    slots_.erase(found);
}

bool FakeEngine::switch_modules(RequestId id, std::vector<JobModule> modules) {
    const auto found = running_.find(id);
    if (found == running_.end()) return false;
    if (refuses_switch) {
        stop_waiting(id);
        return false;
    }
    ++switches;
    note_owners(modules);
    Running& request = found->second;
    if (request.parked) broken_rules.push_back("a preempted request was switched");
    std::vector<AppliedModule> applied;
    for (const JobModule& module : modules) applied.push_back(module.applied);
    request.job->modules = std::move(modules);
    if (request.job->revise) {
        request.before = request.made;
        request.expects_revision = request.waits = false;
        request.job->sink->push(Revised{request.made, std::move(applied)});
    } else {
        request.job->sink->push(Switched{request.made, std::move(applied)});
    }
    return true;
}

bool FakeEngine::preempt(RequestId id, int steps_out) {
    const auto found = running_.find(id);
    if (found == running_.end() || found->second.job->modules.empty() || !found->second.computes()) return false;
    found->second.out = steps_out;
    return true;
}

std::vector<RequestId> FakeEngine::computing() const {
    std::vector<RequestId> ids;
    for (const auto& [id, request] : running_)
        if (request.computes()) ids.push_back(id);
    return ids;
}

void FakeEngine::settle_preempted(StepReport& report) {
    for (auto& [id, request] : running_) {
        if (!request.out || request.wanted) continue;
        if (!request.parked) {
            request.parked = true;
            ++report.preempted;
            report.parked.push_back(id);
        } else if ((*request.out)-- <= 0) {
            request.wanted = true;
            report.wanted.push_back(id);
        }
    }
}

bool FakeEngine::resume(RequestId id, std::vector<JobModule> modules) {
    const auto found = running_.find(id);
    if (found == running_.end()) return false;
    Running& request = found->second;
    if (!request.wanted) broken_rules.push_back("a request was resumed that was not wanted");
    const auto same = [](const JobModule& a, const JobModule& b) {
        return a.applied.id == b.applied.id && a.applied.weight == b.applied.weight;
    };
    if (!std::ranges::equal(modules, request.job->modules, same))
        broken_rules.push_back("a request was resumed with other modules");
    ++resumes;
    request.job->modules = std::move(modules);
    request.out.reset();
    request.parked = request.wanted = false;
    return true;
}

Result<void> FakeEngine::restore_base(const std::vector<std::size_t>& tensors, TimePoint good) {
    repairs.push_back(tensors);
    good_times.push_back(good);
    for (const std::size_t tensor : tensors) {
        if (auto done = audit_->restore(tensor); !done) return done;
    }
    for (const RequestId id : std::exchange(told_damage, {})) {
        const auto found = running_.find(id);
        if (found == running_.end()) continue;
        found->second.job->sink->push(Failed{make_error(Errc::base_damaged, "it was answered by damaged weights")});
        EndedRequest ended;
        ended.id = id;
        ended.outcome = "error";
        ended_.push_back(std::move(ended));
        running_.erase(found);
    }
    return {};
}

void FakeEngine::stop_waiting(RequestId id) {
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    Running& request = found->second;
    request.expects_revision = false;
    if (!request.waits) return;
    finish(request, FinishReason::length);
    running_.erase(found);
}

}  // namespace attune
