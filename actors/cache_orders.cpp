// What operators ask for: loads under a name, and orders about one that is there.

#include "actors/cache_manager.hpp"
#include "actors/names.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

std::chrono::milliseconds millis(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace

void CacheManagerState::load_order(const LoadOrder& order) {
    const LoadModuleRequest& request = order->request;
    if (auto valid = check_module_name(request.name, core->info.base_id); !valid) {
        valid.error().param = "lora_name";
        return (*order->reply)(valid.error());
    }
    const auto present = names.find(request.name);
    if (present != names.end() && !request.load_inplace)
        return (*order->reply)(make_error(
            Errc::already_exists, "The lora adapter '" + request.name + "' has already been loaded.", "lora_name"));
    if (tasks.size() >= kQueuedTasks)
        return (*order->reply)(make_error(Errc::overloaded, "too many loads are waiting"));
    look_up(order);
}

void CacheManagerState::look_up(const LoadOrder& order) {
    auto task = std::make_shared<LoaderTask>();
    task->kind = LoaderTask::Kind::resolve;
    task->name = order->request.name;
    task->path = order->request.path;
    enqueue(Task{task, nullptr, [this, order](Result<LoaderDonePtr> done) {
                     if (!done) return (*order->reply)(done.error());
                     const Result<FoundModule>& found = *(*done)->found;
                     if (!found) return (*order->reply)(found.error());
                     if (const auto& header = found->header; !header) {
                         Error error = header.error();
                         error.param = "lora_path";
                         return (*order->reply)(error);
                     }
                     start_order(order, *found);
                 }});
}

/// The second half of load_lora_adapter. Names are checked again: this message alone decides between two orders.
void CacheManagerState::start_order(const LoadOrder& order, FoundModule found) {
    const LoadModuleRequest& request = order->request;
    const auto refuse = [&](Errc code, std::string text) {
        (*order->reply)(make_error(code, std::move(text), "lora_name"));
    };
    const std::string taken = "The lora adapter '" + request.name + "' has already been loaded.";
    if (const auto coming = arriving.find(request.name); coming != arriving.end()) {
        Lease& other = *coming->second;
        const FoundModule& theirs = other.parts.front().name->found;
        const bool same = theirs.path == found.path && theirs.header->source == found.header->source &&
                          other.expected_generation == request.expected_generation;
        if (same) return other.replies.push_back(order->reply);
        if (!request.load_inplace) return refuse(Errc::already_exists, taken);
        return refuse(Errc::conflict, "another load of `" + request.name + "` is under way");
    }
    const bool present = names.contains(request.name);
    if (present && !request.load_inplace) return refuse(Errc::already_exists, taken);
    if (!present && names.size() + arriving.size() >= static_cast<std::size_t>(core->settings.limits.module_names))
        return refuse(Errc::overloaded, "the limit of module names is reached");
    const LeasePtr lease = new_lease(std::nullopt);
    auto fresh = std::make_shared<NameEntry>();
    fresh->found = std::move(found);
    fresh->created = unix_seconds();
    lease->parts.push_back(Lease::Part{fresh, 1.0, nullptr, nullptr});
    lease->replies.push_back(order->reply);
    if (fresh->is_composition())
        return refuse(Errc::invalid_argument,
                      "`" + request.name + "` is a composition: it is found under a module root");
    lease->commits = true;
    lease->inplace = request.load_inplace;
    lease->expected_generation = request.expected_generation;
    if (is_strict() && present) compare_with(*lease, names.at(request.name));
    if (auto fits = check_fits(*lease); !fits) return fail(lease, fits.error());
    arriving[request.name] = lease;
    line.push_back(lease);
    self->delayed_send(self, millis(core->settings.modules.load_timeout_s), expire_atom_v, lease->number);
    pump();
}

void CacheManagerState::named_order(const NamedOrderPtr& order) {
    const NamePtr entry = find(order->name, order->caller);
    auto& reply = *order->reply;
    if (!entry) {
        if (order->order) return reply(unknown_module(order->name));
        return reply(
            make_error(Errc::unknown_model, "The lora adapter '" + order->name + "' cannot be found.", "lora_name"));
    }
    if (!order->order) {
        ModuleStatus last = status(*entry);
        remove_name(entry);
        return reply(std::move(last));
    }
    switch (*order->order) {
        case ModuleOrder::load:
            return order_load(entry, order->reply);
        case ModuleOrder::unload:
            return order_unload(entry, order->reply);
        case ModuleOrder::pin:
            if (auto known = check_members(*entry, order->caller); !known) return reply(known.error());
            entry->pinned = true;
            refresh_pins();
            pin(entry);
            break;
        case ModuleOrder::unpin:
            entry->pinned = false;
            refresh_pins();
            break;
    }
    reply(status(*entry));
}

/// A composition has no memory of its own: its members leave, but for those that something else pins.
void CacheManagerState::order_unload(const NamePtr& entry, const OnceReplyPtr<ModuleStatus>& reply) {
    if (entry->is_pinned()) {
        const std::string by = entry->pinned ? "" : " by a composition";
        return (*reply)(
            make_error(Errc::conflict, "module `" + entry->name() + "` is pinned" + by + ": unpin it first"));
    }
    for (const NamePtr& member : members_of(*entry))
        if (!member->is_pinned()) make_cold(member);
    make_cold(entry);
    (*reply)(status(*entry));
}

/// The name stays. Whoever holds or awaits its generation keeps it; the trigger forgets that it was hot.
void CacheManagerState::make_cold(const NamePtr& entry) {
    if (const LoadPtr load = std::exchange(entry->load, nullptr)) {
        std::erase(load->names, entry);
        abandon(load);
    }
    unlink(entry);
    self->send(peers->trigger, unload_atom_v, Names{{entry->name()}});
    pump();
}

void CacheManagerState::order_load(const NamePtr& entry, const OnceReplyPtr<ModuleStatus>& reply) {
    if (!entry->found.header) {  // what the roots' scan could not read is looked at again
        auto task = std::make_shared<LoaderTask>();
        task->kind = LoaderTask::Kind::resolve;
        task->name = entry->name();
        task->path = entry->found.path.string();
        return enqueue(Task{task, nullptr, [this, entry, reply](Result<LoaderDonePtr> done) {
                                if (!done) return (*reply)(done.error());
                                const Result<FoundModule>& found = *(*done)->found;
                                if (!found || !found->header) {
                                    const Error why = found ? found->header.error() : found.error();
                                    entry->failure = LoadFailure{why, false, 1, {}};
                                    return (*reply)(failure_of(*entry));
                                }
                                entry->found.header = found->header;
                                order_load(entry, reply);
                            }});
    }
    if (auto known = check_members(*entry, Caller{}); !known) return (*reply)(known.error());
    const LeasePtr lease = new_lease(std::nullopt);
    for (const NamePtr& one : entry->is_composition() ? members_of(*entry) : std::vector<NamePtr>{entry}) {
        if (!one->copy) one->failure.reset();
        lease->parts.push_back(Lease::Part{one, 1.0, nullptr, nullptr});
    }
    lease->subject = entry;
    lease->replies.push_back(reply);
    if (auto fits = check_fits(*lease); !fits) return fail(lease, fits.error());
    line.push_back(lease);
    self->delayed_send(self, millis(core->settings.modules.load_timeout_s), expire_atom_v, lease->number);
    pump();
}

/// The house itself waits for this module already.
bool CacheManagerState::is_wished(const NamePtr& entry) const {
    return std::any_of(line.begin(), line.end(), [&](const LeasePtr& lease) {
        return !lease->request && std::any_of(lease->parts.begin(), lease->parts.end(),
                                              [&](const Lease::Part& part) { return part.name == entry; });
    });
}

/// The house's own wish to have a module resident.
LeasePtr CacheManagerState::own_lease(const NamePtr& entry, bool give_up) {
    const LeasePtr lease = new_lease(std::nullopt);
    lease->parts.push_back(Lease::Part{entry, 1.0, nullptr, nullptr});
    lease->give_up = give_up;
    if (entry->is_composition()) return lease;  // it has no memory: see pin()
    if (is_blocked(*entry, lease->since) || !entry->found.header || !check_fits(*lease)) return lease;
    line.push_back(lease);
    pump();
    return lease;
}

void CacheManagerState::expire(std::uint64_t number) {
    const auto load = std::find_if(loads.begin(), loads.end(), [&](const LoadPtr& l) { return l->number == number; });
    if (load != loads.end() && (*load)->running && !(*load)->expired) {
        const LoadPtr late = *load;
        late->expired = true;
        if (core->metrics) core->metrics->loaded("timeout", core->settings.modules.load_timeout_s);
        fail_load(late, make_error(Errc::timeout, "it was not read in time"));
        pump();
        return;
    }
    const auto lease = std::find_if(line.begin(), line.end(), [&](const LeasePtr& l) { return l->number == number; });
    if (lease != line.end() && (*lease)->stage == Lease::Stage::queued)
        fail(*lease, make_error(Errc::no_room, "no host memory became free for it in time"));
}

/// The house's own lease ends here: order, pin or prefetch.
void CacheManagerState::finish_own(const LeasePtr& lease) {
    const NamePtr entry = lease->subject ? lease->subject : lease->parts.front().name;
    const bool was_held = lease->stage >= Lease::Stage::placing;
    let_go(*lease);
    line.remove(lease);
    const Error no_room = make_error(Errc::no_room, "no host memory is free for module `" + entry->name() + "` now");
    for (const auto& reply : lease->replies) {
        if (was_held)
            (*reply)(status(*entry));
        else
            (*reply)(no_room);
    }
}

/// The checked module gets its name, or its name's next generation, in this one message.
Result<void> CacheManagerState::commit(Lease& lease) {
    const NamePtr fresh = lease.parts.front().name;
    arriving.erase(fresh->name());
    lease.commits = false;
    const auto refuse = [&](Error error) {
        unlink(fresh);
        return error;
    };
    const auto present = names.find(fresh->name());
    if (present == names.end()) {
        if (lease.expected_generation)
            return refuse(make_error(Errc::conflict, "module `" + fresh->name() + "` has no generation to replace"));
        if (auto allowed = check_swap(lease); !allowed) return refuse(allowed.error());
        fresh->listed = true;
        forget_compared(lease);
        fresh->pinned = fresh->found.manifest.pin;  // empty unless manifests that come by order are trusted
        names[fresh->name()] = fresh;
        refresh_pins();
        send_rules();
        return {};
    }
    const NamePtr entry = present->second;
    if (!lease.inplace)
        return refuse(make_error(Errc::already_exists,
                                 "The lora adapter '" + fresh->name() + "' has already been loaded.", "lora_name"));
    if (lease.expected_generation && (!entry->copy || entry->copy->module->id.generation != *lease.expected_generation))
        return refuse(make_error(Errc::conflict, "module `" + fresh->name() + "` is not at the expected generation"));
    if (auto allowed = check_swap(lease); !allowed) return refuse(allowed.error());
    forget_compared(lease);
    const CopyPtr next = lease.parts.front().copy;
    unlink(fresh);
    unlink(entry);
    entry->from_root = entry->from_root && entry->found.path == fresh->found.path;
    entry->found.path = fresh->found.path;
    entry->found.header = fresh->found.header;
    entry->failure.reset();
    entry->known_slot_bytes = next->slot_bytes;
    entry->copy = next;
    next->aliases.push_back(entry.get());
    if (core->settings.modules.trust_manifests == "always") {
        entry->found.manifest = fresh->found.manifest;
        send_rules();
    }
    lease.parts.front().name = entry;
    if (core->metrics) core->metrics->swapped();
    return {};
}

}  // namespace attune
