#include "actors/auditor.hpp"

#include <algorithm>
#include <utility>

namespace attune {

void AuditorState::start() {
    const BaseAudit& base = *core->audit;
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < base.tensors(); ++i) {
        expected.push_back(base.expected(i));
        total_bytes_ += base.bytes(i);
    }
    good_.resize(base.tensors());
    status_.checkpoint = base.checkpoint();
    status_.expected = status_.measured = BaseAudit::combine(expected);
    status_.state = good_state();
    const AuditSettings& settings = core->settings.audit;
    if (settings.interval_s <= 0 || base.tensors() == 0) return;
    // One pass takes about one interval, never faster than the allowed rate.
    const double wanted = static_cast<double>(total_bytes_) / settings.interval_s;
    const double rate = std::min(wanted, static_cast<double>(settings.bytes_per_s));
    const double ticks_per_s = 1000.0 / static_cast<double>(kTick.count());
    tick_bytes_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rate / ticks_per_s));
    self->delayed_send(self, kTick, tick_atom_v);
}

void AuditorState::wire(const PeersPtr& all) {
    const bool first = !peers;
    peers = all;
    if (first && core->health->alarm) raise("the alarm of a former auditor stands");
}

void AuditorState::told(const std::string& text) { raise(text); }

void AuditorState::tick() {
    self->delayed_send(self, kTick, tick_atom_v);
    // The two passes share the tensors' cursors, so the background waits for one that was asked for.
    if (asked_ || repairing_) return;
    if (!advance(background_, tick_bytes_)) return;
    finish(std::exchange(background_, {}));
}

void AuditorState::audit(bool run, const AuditReply& reply) {
    if (!run || core->audit->tensors() == 0) return (*reply)(status_);
    if (asked_ || repairing_) return later_.push_back(reply);
    waiting_.push_back(reply);
    begin_asked();
}

void AuditorState::begin_asked() {
    asked_.emplace();
    // The background may be inside a tensor: its first half was hashed before this pass was asked for.
    flush_ = true;
    self->send(self, step_atom_v);
}

void AuditorState::step() {
    if (!asked_) return;
    if (flush_) {
        flush_ = false;
        if (background_.tensor < core->audit->tensors()) {
            while (!core->audit->hash_some(background_.tensor, kSlice).complete) {
            }
        }
        background_ = {};
    }
    if (!advance(*asked_, kSlice)) return self->send(self, step_atom_v);
    const Pass done = std::move(*asked_);
    asked_.reset();
    finish(done);
    for (const AuditReply& reply : std::exchange(waiting_, {})) (*reply)(status_);
    if (core->health->alarm) return order_repair();
    next();
}

void AuditorState::next() {
    if (later_.empty()) return;
    waiting_ = std::exchange(later_, {});
    begin_asked();
}

bool AuditorState::advance(Pass& pass, std::uint64_t budget) {
    BaseAudit& base = *core->audit;
    while (pass.tensor < base.tensors() && budget > 0) {
        if (!pass.begun) pass.begun = core->now();
        const BaseAudit::Progress progress = base.hash_some(pass.tensor, budget);
        budget -= std::min(budget, std::max<std::uint64_t>(progress.bytes, 1));
        if (!progress.complete) continue;
        const TimePoint begun = *std::exchange(pass.begun, std::nullopt);
        if (progress.hash == base.expected(pass.tensor))
            good_[pass.tensor] = begun;
        else
            damaged(pass.tensor);
        pass.hashes.push_back(progress.hash);
        ++pass.tensor;
    }
    return pass.tensor >= base.tensors();
}

void AuditorState::finish(const Pass& pass) {
    status_.measured = BaseAudit::combine(pass.hashes);
    ++status_.runs;
    const bool clean = status_.measured == status_.expected;
    if (core->metrics) core->metrics->audit_pass(clean && status_.ok);
}

void AuditorState::damaged(std::size_t tensor) {
    if (!damaged_.insert(tensor).second) return;
    status_.damaged.clear();
    for (const std::size_t one : damaged_) status_.damaged.push_back(core->audit->name(one));
    raise("tensor `" + core->audit->name(tensor) + "` of the resident base has changed");
}

/// Everything else is looked at before anything is repaired: a pass that finds damage, or is told of some, is followed
/// by a whole one unless it is one itself.
void AuditorState::raise(const std::string& text) {
    log(LogLevel::error, "audit: " + text);
    core->health->alarm = true;
    if (status_.ok) {  // one alarm may name several tensors
        status_.ok = false;
        status_.state = "alarm";
        ++status_.alarms;
        if (core->metrics) core->metrics->alarm();
    }
    if (!asked_ && core->audit->tensors() > 0) begin_asked();
}

void AuditorState::order_repair() {
    // Nothing is hashed meanwhile: what it found would be about a base that is being written.
    repairing_ = true;
    Damage damage{{damaged_.begin(), damaged_.end()}, core->now()};
    for (const std::size_t tensor : damaged_) damage.good = std::min(damage.good, good_[tensor]);
    self->request(peers->executor, caf::infinite, repair_atom_v, std::move(damage))
        .then([this](bool done, const std::string& why) { repaired(done, why); },
              [this](const caf::error&) { repaired(false, "the executor is gone"); });
}

void AuditorState::repaired(bool done, const std::string& why) {
    repairing_ = false;
    if (!done) {
        log(LogLevel::error, "audit: the base could not be restored: " + why);
        return next();
    }
    log(LogLevel::warn, "audit: the base is restored from its source");
    for (const std::size_t tensor : std::exchange(damaged_, {})) good_[tensor] = core->now();
    status_.ok = true;
    status_.state = good_state();
    status_.measured = status_.expected;
    status_.damaged.clear();
    if (core->metrics) core->metrics->repaired();
    next();
}

AuditorActor::behavior_type auditor(AuditorActor::stateful_pointer<AuditorState> self, CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    state.start();
    return {
        [&state](wire_atom, const PeersPtr& peers) { state.wire(peers); },
        [&state](damage_atom, const std::string& text) { state.told(text); },
        [&state](tick_atom) { state.tick(); },
        [&state](step_atom) { state.step(); },
        [&state](audit_atom, bool run, const AuditReply& reply) { state.audit(run, reply); },
    };
}

}  // namespace attune
