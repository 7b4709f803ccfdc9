#include "actors/cache_manager.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

bool can_recover(Errc code) {
    switch (code) {
        case Errc::invalid_module:
        case Errc::invalid_argument:
        case Errc::unsupported:
        case Errc::not_found:
        case Errc::payload_too_large:
            return false;
        default:
            return true;
    }
}

std::chrono::seconds backoff(int attempts) {
    constexpr int kLongest = 64;
    return std::chrono::seconds(std::min(kLongest, 1 << std::min(attempts - 1, 6)));
}

}  // namespace

// ---------------------------------------------------------------- loaders

void CacheManagerState::enqueue(Task task) {
    tasks.push_back(std::move(task));
    dispatch();
}

void CacheManagerState::dispatch() {
    for (std::size_t i = 0; i < loaders.size() && !tasks.empty(); ++i) {
        if (!loaders[i].free) continue;
        Task task = std::move(tasks.front());
        tasks.pop_front();
        run(i, std::move(task));
    }
}

void CacheManagerState::run(std::size_t loader, Task task) {
    LoaderSlot& slot = loaders[loader];
    slot.free = false;
    const std::uint64_t wired = slot.wired;
    if (task.load) {
        task.load->running = true;
        task.load->started = core->now();
        const auto limit = std::chrono::duration<double>(core->settings.modules.load_timeout_s);
        self->delayed_send(self, std::chrono::duration_cast<std::chrono::milliseconds>(limit), expire_atom_v,
                           task.load->number);
    }
    self->request(slot.actor, caf::infinite, work_atom_v, task.task)
        .then(
            [this, loader, wired, task](const LoaderDonePtr& done) {
                if (loaders[loader].wired == wired) loaders[loader].free = true;
                task.done(done);
                dispatch();
                pump();
            },
            [this, task](const caf::error& error) mutable {
                // The loader is gone. It gets no more work until the supervisor has wired another; the task moves on.
                if (++task.attempts < 3)
                    tasks.push_front(std::move(task));
                else
                    task.done(from_caf(error));
                dispatch();
                pump();
            });
}

// ---------------------------------------------------------------- host bytes

LoadPtr CacheManagerState::load_in_flight(const NameEntry& entry) const {
    if (!entry.found.header) return nullptr;
    for (const LoadPtr& load : loads)
        if (!load->expired && load->path == entry.found.path && load->source == entry.found.header->source) return load;
    return nullptr;
}

std::uint64_t CacheManagerState::host_need(const Lease& lease) const {
    std::uint64_t bytes = 0;
    std::set<std::filesystem::path> counted;
    for (const Lease::Part& part : lease.parts)
        if (!part.copy && !part.name->copy && !load_in_flight(*part.name) &&
            counted.insert(part.name->found.path).second)
            bytes += part.name->parsed_bytes();
    return bytes;
}

bool CacheManagerState::make_host_room(std::uint64_t bytes, const Lease& keep) {
    const std::uint64_t capacity = core->settings.modules.host_bytes;
    std::vector<CopyPtr> evictable;
    std::uint64_t freeable = 0;
    for (const auto& [generation, copy] : copies) {
        const bool wanted = std::any_of(keep.parts.begin(), keep.parts.end(),
                                        [&](const Lease::Part& part) { return part.name->copy == copy; });
        if (!copy->idle() || copy->pinned() || wanted) continue;
        evictable.push_back(copy);
        freeable += copy->module->host_bytes;
    }
    if (host_used + bytes > capacity + freeable) return false;
    for (const auto& [worth, copy] : leaving_order(evictable, &Copy::host_worth)) {
        if (host_used + bytes <= capacity) break;
        host_order.left(worth);
        evict(copy);
    }
    return host_used + bytes <= capacity;
}

/// A prefetch takes free room only, and none that the trigger would clear again at its next tick: hot modules must not
/// push each other out for ever.
std::uint64_t CacheManagerState::prefetch_limit() const {
    const Settings& settings = core->settings;
    if (settings.modules.idle_unload == "never") return settings.modules.host_bytes;
    return static_cast<std::uint64_t>(settings.trigger.high_watermark *
                                      static_cast<double>(settings.modules.host_bytes));
}

/// The whole set or nothing: what is there is leased, what is missing gets its bytes reserved and its load started.
bool CacheManagerState::try_hold(Lease& lease) {
    const bool first = starving.get() == &lease;
    for (const Lease::Part& part : lease.parts)
        if (!first && part.name->copy && part.name->copy->handover) return false;
    if (const std::uint64_t bytes = host_need(lease); bytes > 0) {
        if (starving && !first) return false;
        if (lease.give_up && host_used + bytes > prefetch_limit()) return false;
        if (!make_host_room(bytes, lease)) return false;
    }
    lease.stage = Lease::Stage::placing;
    for (Lease::Part& part : lease.parts) {
        if (part.name->copy) {
            part.copy = part.name->copy;
            ++part.copy->leases;
            continue;
        }
        lease.stage = Lease::Stage::loading;
        part.load = load_in_flight(*part.name);
        if (!part.load) {
            start_load(part.name);
            part.load = part.name->load;
        } else if (!part.name->load) {
            part.name->load = part.load;
            part.load->names.push_back(part.name);
        }
    }
    return true;
}

void CacheManagerState::start_load(const NamePtr& entry) {
    auto load = std::make_shared<Load>();
    load->number = ++numbers;
    load->name = entry->name();
    load->path = entry->found.path;
    if (entry->found.header) load->source = entry->found.header->source;
    load->reserved = entry->parsed_bytes();
    load->names.push_back(entry);
    host_used += load->reserved;
    entry->load = load;
    loads.push_back(load);
    auto task = std::make_shared<LoaderTask>();
    task->kind = LoaderTask::Kind::load;
    task->name = entry->name();
    task->path = entry->found.path.string();
    task->bytes = load->reserved;
    enqueue(Task{task, load, [this, load](Result<LoaderDonePtr> done) {
                     if (!done)
                         loaded(load, done.error());
                     else
                         loaded(load, *(*done)->module);
                 }});
}

/// A load that nobody waits for any more is taken back if no loader has begun it; a running one ends in host memory.
void CacheManagerState::abandon(const LoadPtr& load) {
    if (load->running) return;
    for (const LeasePtr& lease : line)
        for (const Lease::Part& part : lease->parts)
            if (part.load == load) return;
    std::erase_if(tasks, [&](const Task& task) { return task.load == load; });
    std::erase(loads, load);
    host_used -= load->reserved;
    for (const NamePtr& entry : load->names)
        if (entry->load == load) entry->load = nullptr;
}

void CacheManagerState::loaded(const LoadPtr& load, Result<ModulePtr> result) {
    host_used -= load->reserved;
    std::erase(loads, load);
    if (load->expired) return;
    const double seconds = milliseconds_between(load->started, core->now()) / 1000;
    if (core->metrics) core->metrics->loaded(result ? "ok" : "failed", seconds);
    if (!result) return fail_load(load, result.error());
    const CopyPtr copy = keep_copy(*result, seconds);
    for (const NamePtr& entry : load->names) {
        if (entry->load == load) entry->load = nullptr;
        const bool wanted = entry->listed || std::any_of(line.begin(), line.end(), [&](const LeasePtr& lease) {
                                return lease->commits && lease->parts.front().name == entry;
                            });
        if (!wanted || entry->copy) continue;
        entry->copy = copy;
        entry->failure.reset();
        if (entry->known_slot_bytes > 0 && core->metrics) core->metrics->reloaded(entry->name());
        entry->known_slot_bytes = copy->slot_bytes;
        copy->aliases.push_back(entry.get());
    }
    for (const LeasePtr& lease : line)
        for (Lease::Part& part : lease->parts)
            if (part.load == load) {
                part.load = nullptr;
                part.copy = copy;
                ++copy->leases;
            }
    drop_if_unused(copy);
}

void CacheManagerState::fail_load(const LoadPtr& load, const Error& error) {
    log(LogLevel::warn, "module `" + load->name + "` could not be loaded: " + error.message);
    for (const NamePtr& entry : load->names) {
        if (entry->load == load) entry->load = nullptr;
        const int attempts = entry->failure ? entry->failure->attempts + 1 : 1;
        entry->failure = LoadFailure{error, can_recover(error.code), attempts, core->now() + backoff(attempts)};
    }
    const std::vector<LeasePtr> waiting(line.begin(), line.end());
    for (const LeasePtr& lease : waiting)
        for (const Lease::Part& part : lease->parts)
            if (part.load == load || (lease->stage == Lease::Stage::queued && part.name->failure &&
                                      std::count(load->names.begin(), load->names.end(), part.name) > 0)) {
                fail(lease, failure_of(*part.name));
                break;
            }
}

/// Equal content is one copy, whatever name or path it came by.
CopyPtr CacheManagerState::keep_copy(const ModulePtr& module, double load_seconds) {
    CopyPtr& copy = copies[module->id.generation];
    if (!copy) {
        copy = std::make_shared<Copy>();
        copy->module = module;
        copy->slot_bytes = core->slot_bytes(*module);
        host_used += module->host_bytes;
    }
    copy->load_seconds = load_seconds;
    stamp(*copy);
    return copy;
}

/// Used now, while its tiers have these ages.
void CacheManagerState::stamp(Copy& copy) const {
    copy.last_used = core->now();
    copy.host_age = host_order.age();
    copy.slot_age = slot_order.age();
}

/// Who leaves first in front. What each is worth is reckoned once: hits fade with every look at the clock, and an order
/// that changes while it is made is none.
std::vector<CacheManagerState::Leaving> CacheManagerState::leaving_order(const std::vector<CopyPtr>& evictable,
                                                                         double (Copy::*worth)(double hits)
                                                                             const) const {
    const bool by_cost = core->settings.modules.eviction == "cost";
    const TimePoint now = core->now();
    const std::chrono::duration<double> half_life(core->settings.trigger.window_s);
    std::vector<Leaving> order;
    for (const CopyPtr& copy : evictable)
        order.push_back({by_cost ? ((*copy).*worth)(copy->uses.at(now, half_life)) : 0.0, copy});
    std::sort(order.begin(), order.end(), [](const Leaving& a, const Leaving& b) {
        return a.worth != b.worth ? a.worth < b.worth : a.copy->last_used < b.copy->last_used;
    });
    return order;
}

void CacheManagerState::evict(const CopyPtr& copy) {
    if (core->metrics) core->metrics->evicted(copy->place == Copy::Place::resident ? "resident" : "host");
    for (NameEntry* alias : copy->aliases) alias->copy = nullptr;
    copy->aliases.clear();
    drop_if_unused(copy);
}

void CacheManagerState::drop_if_unused(const CopyPtr& copy) {
    if (!copy->aliases.empty() || !copy->idle()) return;
    leave_slot(copy);
    host_used -= copy->module->host_bytes;
    copies.erase(copy->module->id.generation);
}

}  // namespace attune
