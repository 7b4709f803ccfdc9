#include "actors/cache_manager.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

std::set<CopyPtr> distinct_copies(const Lease& lease) {
    std::set<CopyPtr> copies;
    for (const Lease::Part& part : lease.parts)
        if (part.copy) copies.insert(part.copy);
    return copies;
}

bool is_complete(const Lease& lease) {
    return std::all_of(lease.parts.begin(), lease.parts.end(), [](const Lease::Part& part) { return part.copy; });
}

bool wants(const Lease& lease, const CopyPtr& copy) {
    return std::any_of(lease.parts.begin(), lease.parts.end(),
                       [&](const Lease::Part& part) { return part.copy == copy || part.name->copy == copy; });
}

bool all_resident(const Lease& lease) {
    return std::all_of(lease.parts.begin(), lease.parts.end(),
                       [](const Lease::Part& part) { return part.copy && part.copy->place == Copy::Place::resident; });
}

}  // namespace

// ---------------------------------------------------------------- the line

/// Moves every waiting lease as far as it can go, in arrival order; again while something moved.
void CacheManagerState::pump() {
    choose_handover();
    for (bool moved = true; moved;) {
        moved = false;
        const std::vector<LeasePtr> waiting(line.begin(), line.end());
        for (const LeasePtr& lease : waiting) {
            const auto before = lease->stage;
            advance(lease);
            if (lease->stage != before) moved = true;
        }
        if (starving && starving->stage >= Lease::Stage::installing) choose_handover();
    }
}

void CacheManagerState::advance(const LeasePtr& lease) {
    if (lease->stage == Lease::Stage::queued) {
        if (auto room = make_owner_room(*lease); !room) return fail(lease, room.error());
        if (!try_hold(*lease)) {
            if (lease->give_up) finish_own(lease);
            return;
        }
    }
    if (lease->stage == Lease::Stage::loading && is_complete(*lease)) lease->stage = Lease::Stage::placing;
    if (lease->stage == Lease::Stage::placing) {
        if (lease->commits) {
            if (auto done = commit(*lease); !done) return fail(lease, done.error());
        }
        if (auto right = check_generations(*lease); !right) return fail(lease, right.error());
        if (auto fits = check_fits(*lease); !fits) {
            // An order has loaded what was asked; that it can never be resident is for its requests to hear.
            if (!lease->request) return finish_own(lease);
            return fail(lease, fits.error());
        }
        // Again: a slot's size is known only now.
        if (auto room = make_owner_room(*lease); !room) return fail(lease, room.error());
        if (!try_place(*lease)) {
            // The house's own wishes do not queue for slots: what is in host memory is warm enough.
            if (!lease->request) finish_own(lease);
            return;
        }
    }
    if (lease->stage == Lease::Stage::installing && all_resident(*lease)) became_ready(lease);
}

std::uint64_t CacheManagerState::device_need(const Lease& lease) const {
    std::uint64_t bytes = 0;
    for (const CopyPtr& copy : distinct_copies(lease))
        if (copy->place == Copy::Place::host) bytes += copy->slot_bytes;
    return bytes;
}

/// A set that could never fit is refused at once, with both sizes.
Result<void> CacheManagerState::check_fits(const Lease& lease) const {
    std::set<const void*> counted;
    std::uint64_t host = 0;
    std::uint64_t device = 0;
    for (const Lease::Part& part : lease.parts) {
        const CopyPtr& copy = part.copy ? part.copy : part.name->copy;
        if (!counted.insert(copy ? static_cast<const void*>(copy.get()) : part.name.get()).second) continue;
        host += copy ? copy->module->host_bytes : part.name->parsed_bytes();
        device += copy ? copy->slot_bytes : part.name->known_slot_bytes;
    }
    const auto refuse = [](std::uint64_t need, const char* where, std::uint64_t have) {
        return make_error(Errc::invalid_argument,
                          "the modules need " + std::to_string(need) + " bytes of " + where +
                              " memory, the budget is " + std::to_string(have),
                          "model");
    };
    if (host > core->settings.modules.host_bytes) return refuse(host, "host", core->settings.modules.host_bytes);
    if (device > core->settings.modules.device_bytes)
        return refuse(device, "device", core->settings.modules.device_bytes);
    return {};
}

bool CacheManagerState::make_device_room(std::uint64_t bytes, const Lease* keep) {
    const std::uint64_t capacity = core->settings.modules.device_bytes;
    const std::set<CopyPtr> wanted = keep ? distinct_copies(*keep) : std::set<CopyPtr>{};
    std::vector<CopyPtr> evictable;
    std::uint64_t freeable = 0;
    for (const auto& [generation, copy] : copies) {
        if (copy->place != Copy::Place::resident || copy->users > 0 || copy->pinned() || wanted.contains(copy))
            continue;
        evictable.push_back(copy);
        freeable += copy->slot_bytes;
    }
    if (device_used + bytes > capacity + freeable) return false;
    for (const auto& [worth, copy] : leaving_order(evictable, &Copy::slot_worth)) {
        if (device_used + bytes <= capacity) break;
        slot_order.left(worth);
        if (core->metrics) core->metrics->evicted("resident");
        leave_slot(copy);
    }
    return true;
}

/// Slots for the whole set or none.
bool CacheManagerState::try_place(Lease& lease) {
    const bool first = starving.get() == &lease;
    if (lease.retry_after == releases) return false;
    const std::set<CopyPtr> set = distinct_copies(lease);
    if (!first && std::any_of(set.begin(), set.end(), [](const CopyPtr& copy) { return copy->handover; })) return false;
    if (const std::uint64_t bytes = device_need(lease); bytes > 0) {
        if (starving && !first) return false;
        if (lease.give_up && device_used + bytes > core->settings.modules.device_bytes) return false;
        if (!make_device_room(bytes, &lease)) return false;
    }
    for (Lease::Part& part : lease.parts) {
        ++part.copy->users;
        part.copy->last_used = core->now();
        if (!lease.request || lease.resumes) continue;  // the house's own wish is nobody's use, a use counts once
        stamp(*part.copy);
        part.copy->uses.use(core->now(), std::chrono::duration<double>(core->settings.trigger.window_s));
    }
    lease.stage = Lease::Stage::installing;
    for (const CopyPtr& copy : set)
        if (copy->place == Copy::Place::host) install(copy);
    return true;
}

void CacheManagerState::install(const CopyPtr& copy) {
    copy->place = Copy::Place::installing;
    device_used += copy->slot_bytes;
    self->request(peers->executor, caf::infinite, install_atom_v, copy->module)
        .then([this, copy](SlotId slot) { installed(copy, slot); },
              [this, copy](const caf::error& error) { installed(copy, from_caf(error)); });
}

void CacheManagerState::installed(const CopyPtr& copy, const Result<SlotId>& result) {
    if (result) {
        copy->place = Copy::Place::resident;
        copy->slot = *result;
    } else {
        copy->place = Copy::Place::host;
        device_used -= copy->slot_bytes;
        not_installed(copy, result.error());
    }
    drop_if_unused(copy);
    pump();
}

/// Everybody who waits for this install steps back. No room although the bytes are there means that the arena is in
/// pieces: whatever no request uses leaves, and the sets try again.
void CacheManagerState::not_installed(const CopyPtr& copy, const Error& error) {
    std::vector<LeasePtr> back;
    for (const LeasePtr& lease : line)
        if (lease->stage == Lease::Stage::installing && distinct_copies(*lease).contains(copy)) back.push_back(lease);
    for (const LeasePtr& lease : back) {
        for (Lease::Part& part : lease->parts) --part.copy->users;
        lease->stage = Lease::Stage::placing;
    }
    bool room = false;  // somebody else left
    bool own = false;   // only parts of the sets themselves: placing them afresh is worth one try
    bool busy = false;
    for (const auto& [generation, other] : copies) {
        if (error.code != Errc::no_room || other == copy || other->place == Copy::Place::host) continue;
        if (other->users > 0 || other->pinned() || other->place == Copy::Place::installing) {
            busy = true;
            continue;
        }
        leave_slot(other);
        const bool mine =
            std::any_of(back.begin(), back.end(), [&](const LeasePtr& lease) { return wants(*lease, other); });
        (mine ? own : room) = true;
    }
    for (const LeasePtr& lease : back) {
        if (room || (own && !std::exchange(lease->afresh, true))) continue;
        if (busy)
            lease->retry_after = releases;
        else
            fail(lease, error);
    }
}

void CacheManagerState::leave_slot(const CopyPtr& copy) {
    if (copy->place != Copy::Place::resident) return;
    self->send(peers->executor, remove_atom_v, copy->slot);
    copy->place = Copy::Place::host;
    copy->merged = false;  // the executor takes it out first
    device_used -= copy->slot_bytes;
}

/// Could the lease have its place if everything that may leave had left? Pins may stand in its way for good.
bool CacheManagerState::can_be_served(const Lease& lease) const {
    const bool for_host = lease.stage == Lease::Stage::queued;
    const ModuleSettings& settings = core->settings.modules;
    std::uint64_t bytes = for_host ? host_need(lease) : device_need(lease);
    for (const auto& [generation, copy] : copies) {
        if (!for_host && copy->place == Copy::Place::host) continue;
        if (copy->pinned() || wants(lease, copy)) bytes += for_host ? copy->module->host_bytes : copy->slot_bytes;
    }
    return bytes <= (for_host ? settings.host_bytes : settings.device_bytes);
}

/// A request that waited long enough goes first: nobody else takes new room, and of the modules in its way as many as
/// it needs take no new request until it has its place. Those in flight end as they would.
void CacheManagerState::choose_handover() {
    for (const auto& [generation, copy] : copies) copy->handover = false;
    starving = nullptr;
    const TimePoint now = core->now();
    const std::chrono::milliseconds drain(core->settings.scheduler.drain_ms);
    for (const LeasePtr& lease : line) {
        const bool waits = lease->stage == Lease::Stage::queued || lease->stage == Lease::Stage::placing;
        if (!lease->request || !waits || now - lease->since < drain || !can_be_served(*lease)) continue;
        starving = lease;
        break;
    }
    if (!starving) return;
    const bool for_host = starving->stage == Lease::Stage::queued;
    const std::uint64_t capacity = for_host ? core->settings.modules.host_bytes : core->settings.modules.device_bytes;
    std::uint64_t used = for_host ? host_used : device_used;
    const std::uint64_t need = for_host ? host_need(*starving) : device_need(*starving);
    std::vector<CopyPtr> busy;
    for (const auto& [generation, copy] : copies) {
        if (wants(*starving, copy) || copy->pinned() || (!for_host && copy->place == Copy::Place::host)) continue;
        const std::uint64_t bytes = for_host ? copy->module->host_bytes : copy->slot_bytes;
        const bool in_use = for_host ? !copy->idle() : copy->users > 0;
        if (in_use)
            busy.push_back(copy);
        else
            used -= std::min(used, bytes);
    }
    std::sort(busy.begin(), busy.end(), [](const CopyPtr& a, const CopyPtr& b) { return a->leases < b->leases; });
    for (const CopyPtr& copy : busy) {
        if (used + need <= capacity) break;
        copy->handover = true;
        used -= std::min(used, for_host ? copy->module->host_bytes : copy->slot_bytes);
    }
}

// ---------------------------------------------------------------- ends of a wait

void CacheManagerState::became_ready(const LeasePtr& lease) {
    lease->stage = Lease::Stage::ready;
    line.remove(lease);
    if (!lease->request) return finish_own(lease);
    if (lease->resumes) {
        std::exchange(lease->resumes, {})->deliver(JobModules{job_modules(*lease)});
        return;
    }
    LeaseNews news;
    news.kind = LeaseNews::Kind::ready;
    news.was_cold = lease->was_cold;
    news.policy = lease->policy;
    news.own_text = lease->own_text;
    news.combine = lease->combine;
    for (const Lease::Part& part : lease->parts)
        if (part.weight != 0 && part.copy->module->text)
            news.texts.push_back({part.name->name(), part.copy->module->text});
    news.modules = job_modules(*lease);
    tell(*lease, std::move(news));
}

std::vector<JobModule> CacheManagerState::job_modules(const Lease& lease) {
    std::vector<JobModule> modules;
    for (const Lease::Part& part : lease.parts) {
        if (part.weight == 0) continue;  // named, so it must exist and load, but it is switched off
        const Module& module = *part.copy->module;
        AppliedModule applied{ModuleId{part.name->name(), module.id.generation}, part.weight, module.unverified};
        modules.push_back(JobModule{part.copy->slot, std::move(applied), lease.owners});
    }
    return modules;
}

void CacheManagerState::fail(LeasePtr lease, const Error& error) {
    let_go(*lease);
    line.remove(lease);
    if (lease->commits) arriving.erase(lease->parts.front().name->name());
    for (const auto& reply : lease->replies)
        (*reply)(lease->commits ? make_error(error.code, error.message, "lora_path") : error);
    if (!lease->request) return;
    leases.erase(*lease->request);
    if (lease->resumes) {
        std::exchange(lease->resumes, {})->deliver(to_caf(error));
        return;
    }
    LeaseNews news;
    news.kind = LeaseNews::Kind::failed;
    news.was_cold = lease->was_cold;
    news.policy = lease->policy;
    news.error = error;
    tell(*lease, std::move(news));
}

/// Gives back whatever the lease holds; afterwards it is over.
void CacheManagerState::let_go(Lease& lease) {
    const bool in_slots = lease.stage == Lease::Stage::installing || lease.stage == Lease::Stage::ready;
    lease.stage = Lease::Stage::over;
    ++releases;
    std::vector<LoadPtr> waited;
    for (Lease::Part& part : lease.parts) {
        if (part.load) waited.push_back(std::exchange(part.load, nullptr));
        if (!part.copy) continue;
        if (in_slots) --part.copy->users;
        --part.copy->leases;
        part.copy->last_used = core->now();
        drop_if_unused(part.copy);
    }
    // A shadow name that was never listed must not keep its copy alive.
    if (lease.commits && !lease.parts.front().name->listed) unlink(lease.parts.front().name);
    for (const LoadPtr& load : waited) abandon(load);
}

}  // namespace attune
