// Modules merged into the base between two steps, and a base that has to be repaired. When, the policy decides.

#include "engine/engine_impl.hpp"
#include "engine/weights/base_audit.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

// Sets whose bytes are remembered.
constexpr std::size_t kRememberedSets = 64;

ModuleSet set_of(const Sequence& sequence) {
    ModuleSet set;
    for (const SequenceModule& module : sequence.modules().list) set.push_back(module.slot);
    return set;
}

/// Without making the set.
bool asks_for(const SequenceModules& modules, const ModuleSet& set) {
    return std::ranges::equal(modules.list, set, {}, &SequenceModule::slot);
}

}  // namespace

bool EngineImpl::settle_apply(StepReport& report) {
    // Twice at most: another set may follow on a restored one.
    for (bool settled = damage_.has_value(); !settled && !damage_;) {
        const ApplyPolicy::Demand asked = demand();
        switch (apply_.before_step(asked, options_.now())) {
            case ApplyPolicy::Action::merge:
                merge(*asked.only, asked.merge_bytes, report);
                settled = true;
                break;
            case ApplyPolicy::Action::restore:
                restore_merged(report);
                break;
            case ApplyPolicy::Action::stay:
                settled = true;
                break;
        }
    }
    if (apply_.may_merge()) {
        for (const auto& [id, running] : jobs_)
            for (const auto& choice : running->choices) choice->sequence.set_apply(mode_of(choice->sequence.modules()));
    }
    report.damage = std::exchange(damage_, std::nullopt);
    return !report.damage;
}

ApplyPolicy::Demand EngineImpl::demand() {
    ApplyPolicy::Demand demand;
    if (!apply_.may_merge()) return demand;
    const Sequence* first = nullptr;
    bool several = false;
    for (const auto& [id, running] : jobs_) {
        if (running->waits_after) continue;  // its answer has ended: it computes nothing until its modules are there
        const Sequence& sequence = running->choices[0]->sequence;
        if (const ModuleSet* merged = apply_.merged_set()) {
            if (!asks_for(sequence.modules(), *merged)) {
                demand.others = true;
            } else if (std::any_of(running->choices.begin(), running->choices.end(),
                                   [](const auto& choice) { return choice->sequence.has_blocks(); })) {
                demand.merged_runs = true;
            }
        }
        if (running->parked) {  // what its slots hold now may be another's
            several = true;
        } else if (first == nullptr) {
            first = &sequence;
        } else {
            several = several || sequence.modules().list != first->modules().list;
        }
    }
    if (first == nullptr || several || apply_.merged_set() != nullptr) return demand;
    demand.only = set_of(*first);
    demand.merge_bytes = merge_bytes(*demand.only);
    return demand;
}

std::vector<MergedModule> EngineImpl::modules_of(const ModuleSet& set) const {
    std::vector<MergedModule> modules;
    for (const SlotWeight& one : set) modules.push_back({slots_.share(one.slot), one.weight});
    return modules;
}

std::uint64_t EngineImpl::merge_bytes(const ModuleSet& set) {
    const auto known = std::ranges::find(merge_bytes_, set, &std::pair<ModuleSet, std::uint64_t>::first);
    if (known != merge_bytes_.end()) return known->second;
    const auto modules = modules_of(set);
    const bool can_merge =
        std::ranges::all_of(modules, [](const MergedModule& one) { return BaseMerge::can_merge(*one.module); });
    // Requests may bring any weights, so what is remembered has a limit.
    if (merge_bytes_.size() >= kRememberedSets) merge_bytes_.clear();
    return merge_bytes_.emplace_back(set, can_merge ? merge_.touched_bytes(modules) : 0).second;
}

void EngineImpl::merge(const ModuleSet& set, std::uint64_t bytes, StepReport& report) {
    const TimePoint begin = options_.now();
    const auto done = merge_.merge(modules_of(set));
    const double seconds = milliseconds_between(begin, options_.now()) / 1000;
    report.switch_seconds += seconds;
    if (done) {
        ++report.merges;
        slots_.set_merged(true, merge_.is_head_merged());
        apply_.merged(set, bytes, seconds);
        return;
    }
    apply_.refused(set);
    if (done.error().code == Errc::base_damaged) {
        damage_ = done.error();
    } else {
        report.not_merged = done.error().message;
    }
}

void EngineImpl::restore_merged(StepReport& report) {
    const TimePoint begin = options_.now();
    const auto done = merge_.restore();
    const double seconds = milliseconds_between(begin, options_.now()) / 1000;
    report.switch_seconds += seconds;
    ++report.restores;
    slots_.set_merged(false, false);
    apply_.restored(seconds);
    if (!done) damage_ = done.error();
}

void EngineImpl::forget_merged(SlotId slot) {
    const auto uses = [&](const ModuleSet& set) {
        return std::ranges::any_of(set, [&](const SlotWeight& one) { return one.slot == slot; });
    };
    if (const ModuleSet* merged = apply_.merged_set(); merged != nullptr && uses(*merged)) {
        const c10::InferenceMode inference;
        restore_merged(untold_);
    }
    std::erase_if(merge_bytes_, [&](const auto& known) { return uses(known.first); });
    apply_.slot_emptied(slot);
}

/// No row of anybody else while a set is merged.
Scheduler::MayRun EngineImpl::who_may_run() const {
    const ModuleSet* merged = apply_.merged_set();
    if (merged == nullptr) return nullptr;
    return [merged, draining = apply_.is_draining()](const Sequence& sequence) {
        return asks_for(sequence.modules(), *merged) && (!draining || sequence.has_blocks());
    };
}

void EngineImpl::note_apply(const StepPlan& plan, StepReport& report) {
    report.apply = apply_.merged_set() != nullptr ? ApplyMode::merged : ApplyMode::batched;
    for (const ScheduledRows& rows : plan.rows) {
        if (!rows.sequence->modules().list.empty()) find(rows.sequence->request())->note_apply(report.apply);
    }
}

ApplyMode EngineImpl::mode_of(const SequenceModules& modules) const {
    const ModuleSet* merged = apply_.merged_set();
    return merged != nullptr && asks_for(modules, *merged) ? ApplyMode::merged : ApplyMode::batched;
}

Result<void> EngineImpl::restore_base(const std::vector<std::size_t>& tensors, TimePoint good) {
    const c10::InferenceMode inference;
    Result<void> all;
    try {
        if (apply_.merged_set() != nullptr) {
            restore_merged(untold_);  // a merged tensor among the damaged comes back right here
        }
        damage_.reset();
        const auto audit = model_->audit();
        for (const std::size_t tensor : tensors) {
            if (auto done = audit->restore(tensor); !done && all) all = done;
        }
    } catch (const std::exception&) {
        all = make_error(Errc::base_damaged, "the base could not be restored");
    }
    if (!all) return all;
    apply_.base_repaired();
    std::vector<RunningJob*> wrong;
    for (const auto& [id, running] : jobs_) {
        if (running->last_told && *running->last_told >= good) {
            wrong.push_back(running.get());
            continue;
        }
        running->forget_prompt_scores();
        for (const auto& choice : running->choices)
            if (choice->open) scheduler_.requeue(choice->sequence);
    }
    drop_prefix_cache();
    for (RunningJob* running : wrong)
        fail(*running, make_error(Errc::base_damaged, "the resident base changed while this request was answered"));
    return {};
}

}  // namespace attune
