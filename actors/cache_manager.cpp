#include "actors/cache_manager.hpp"

#include "actors/names.hpp"
#include "actors/resolve_modules.hpp"

#include <algorithm>
#include <utility>

namespace attune {
// ---------------------------------------------------------------- requests

void CacheManagerState::wire(const PeersPtr& next) {
    peers = next;
    loaders.resize(peers->loaders.size());
    for (std::size_t i = 0; i < loaders.size(); ++i)
        if (loaders[i].actor != peers->loaders[i]) loaders[i] = LoaderSlot{peers->loaders[i], true, ++numbers};
    if (!std::exchange(scanned, true)) scan();
    dispatch();
}

NamePtr CacheManagerState::find(const std::string& wanted, const Caller& caller) const {
    const auto entry = names.find(module_name(wanted));
    return entry != names.end() && entry->second->visible_to(caller) ? entry->second : nullptr;
}

LeasePtr CacheManagerState::new_lease(std::optional<RequestId> request) {
    auto lease = std::make_shared<Lease>();
    lease->number = ++numbers;
    lease->request = request;
    lease->since = core->now();
    return lease;
}

void CacheManagerState::tell(const Lease& lease, LeaseNews news) {
    self->send(peers->router, lease_atom_v, *lease.request, std::move(news));
}

ColdPolicy CacheManagerState::policy_for(const LeaseAsk& ask, const Lease& lease) const {
    if (lease.own_text) return ColdPolicy::wait;  // no other weights may answer a prompt written for these
    if (ask.cold) return *ask.cold;
    // Of several manifests the most careful one counts: wait before fallback before upgrade.
    std::optional<ColdPolicy> policy;
    for (const Lease::Part& part : lease.parts)
        if (const auto& own = part.name->found.manifest.cold; own && (!policy || *own < *policy)) policy = own;
    return policy.value_or(core->settings.cold.policy);
}

/// The set that `asked` stands for, in the order it acts in.
Result<void> CacheManagerState::fill(Lease& lease, const LeaseAsk& ask) const {
    const Caller& caller = ask.caller;
    const auto look = [&](const std::string& wanted) -> Result<KnownModule> {
        const NamePtr entry = find(wanted, caller);
        if (!entry) return unknown_module(wanted);
        if (is_blocked(*entry, lease.since)) return failure_of(*entry);
        if (!entry->owner().empty()) lease.owners.push_back(entry->owner());
        return KnownModule{entry->found.header ? &*entry->found.header : nullptr,
                           entry->copy ? entry->copy->module->id.generation : ""};
    };
    auto resolved = resolve_modules(ask.modules, core->settings.limits.modules, look, ask.combine);
    if (!resolved) return resolved.error();
    for (const WeightedModule& module : resolved->modules)
        lease.parts.push_back(Lease::Part{find(module.name, caller), module.weight, nullptr, nullptr});
    lease.unchecked = std::move(resolved->unchecked);
    lease.combine = resolved->combine;
    return {};
}

/// What could not be known before the set was in memory: the generations that its modules require of each other.
Result<void> CacheManagerState::check_generations(const Lease& lease) const {
    for (const RequiredGeneration& wanted : lease.unchecked)
        for (const Lease::Part& part : lease.parts) {
            if (part.name->name() != wanted.name) continue;
            const Module& module = *part.copy->module;
            if (module.id.generation != wanted.pin) return wrong_pin(wanted, module.version, module.id.generation);
        }
    return {};
}

void CacheManagerState::lease(const LeaseAsk& ask) {
    const LeasePtr lease = new_lease(ask.id);
    Names hits;
    if (auto known = fill(*lease, ask); !known) return fail(lease, known.error());
    for (const Lease::Part& part : lease->parts) {
        hits.list.push_back(part.name->name());
        lease->own_text = lease->own_text || (part.weight != 0 && part.name->own_text());
    }
    lease->policy = policy_for(ask, *lease);
    self->send(peers->trigger, hit_atom_v, std::move(hits));
    if (auto fits = check_fits(*lease); !fits) return fail(lease, fits.error());
    leases[ask.id] = lease;
    line.push_back(lease);
    pump();
    if (lease->stage >= Lease::Stage::ready) return;  // the router has been told
    LeaseNews news;
    lease->was_cold = lease->stage != Lease::Stage::installing;
    news.kind = lease->was_cold ? LeaseNews::Kind::cold : LeaseNews::Kind::warm;
    news.was_cold = lease->was_cold;
    news.policy = lease->policy;
    news.own_text = lease->own_text;
    news.combine = lease->combine;
    tell(*lease, std::move(news));
}

/// A lease that is not taken: the names are there for the caller, none has failed, and the set could fit.
Result<void> CacheManagerState::check(const LeaseAsk& ask) {
    const LeasePtr lease = new_lease(ask.id);
    if (auto known = fill(*lease, ask); !known) return known;
    return check_fits(*lease);
}

void CacheManagerState::release(RequestId id, bool keep_loading) {
    const auto found = leases.find(id);
    if (found == leases.end()) return;
    const LeasePtr lease = found->second;
    leases.erase(found);
    // One wish of the house per module: under load that finds no room, more would only make the line longer.
    const bool wished = std::all_of(lease->parts.begin(), lease->parts.end(),
                                    [this](const Lease::Part& part) { return is_wished(part.name); });
    if (keep_loading && lease->stage < Lease::Stage::ready && !wished) {
        lease->request.reset();
    } else {
        let_go(*lease);
        line.remove(lease);
        if (lease->resumes)
            std::exchange(lease->resumes, {})->deliver(to_caf(make_error(Errc::cancelled, "the request has ended")));
    }
    pump();
}

void CacheManagerState::list(const Caller& caller, const ListReply& reply) {
    std::map<const NameEntry*, int> waiting;
    for (const LeasePtr& lease : line)
        for (const Lease::Part& part : lease->parts)
            if (!part.copy) ++waiting[part.name.get()];
    auto all = std::make_shared<std::vector<ModuleStatus>>();
    for (const auto& [unused, entry] : names) {
        if (!entry->visible_to(caller)) continue;
        all->push_back(status(*entry));
        if (const auto found = waiting.find(entry.get()); found != waiting.end()) all->back().leases += found->second;
    }
    self->send(peers->trigger, list_atom_v, ModuleList(std::move(all)), reply);
}

// ---------------------------------------------------------------- trigger

void CacheManagerState::prefetch(const std::vector<std::string>& wanted) {
    for (const std::string& one : wanted) {
        const auto entry = names.find(one);
        if (entry == names.end()) continue;
        const NamePtr& named = entry->second;
        for (const NamePtr& part : named->is_composition() ? members_of(*named) : std::vector<NamePtr>{named}) {
            const Tier tier = part->tier();
            if (tier == Tier::cold || tier == Tier::host) own_lease(part, true);
        }
    }
}

/// A user's preferences give no rights: of their modules only those that the caller may use are fetched.
void CacheManagerState::greet(Greeting greeting) {
    std::erase_if(greeting.modules, [&](std::string& module) {
        const NamePtr entry = find(module, greeting.caller);
        if (entry) module = entry->name();
        return !entry;
    });
    prefetch(greeting.modules);
    self->send(peers->trigger, greet_atom_v, std::move(greeting));
}

void CacheManagerState::unload_idle(const std::vector<std::string>& unwanted) {
    for (const std::string& one : unwanted) {
        const auto entry = names.find(one);
        if (entry == names.end() || !entry->second->copy) continue;
        const CopyPtr copy = entry->second->copy;
        // Between the trigger's plan and now a request may have come: leases and pins decide here.
        if (copy->idle() && !copy->pinned()) evict(copy);
    }
    pump();
}

void CacheManagerState::tell_usage() {
    auto usage = std::make_shared<CacheUsage>();
    std::vector<NamePtr> missing;
    for (const auto& [one, entry] : names) {
        if (entry->is_pinned() && !entry->is_composition() && entry->tier() != Tier::resident) missing.push_back(entry);
        if (!entry->copy) continue;
        const bool busy = !entry->copy->idle();
        usage->loaded.push_back({one, busy, entry->copy->pinned(), entry->copy->module->host_bytes});
    }
    usage->host_used = host_used;
    usage->host_capacity = core->settings.modules.host_bytes;
    usage->device_used = device_used;
    usage->device_capacity = core->settings.modules.device_bytes;
    self->send(peers->trigger, usage_atom_v, CacheUsagePtr(std::move(usage)));
    for (const NamePtr& entry : missing)  // a pin that found no room is tried again
        if (!is_wished(entry)) own_lease(entry, false);
}

// ---------------------------------------------------------------- metrics

void CacheManagerState::fill_metrics(const TextReply& reply) {
    Metrics::Tiers tiers;
    for (const auto& [key, entry] : names) {
        if (entry->is_composition()) continue;  // it has no memory; its members are told
        const Tier tier = entry->tier();
        tiers.pinned += entry->is_pinned();
        tiers.cold += tier == Tier::cold;
        tiers.loading += tier == Tier::loading;
        tiers.host += tier == Tier::host;
        tiers.resident += tier == Tier::resident;
        tiers.failed += tier == Tier::failed;
        if (entry->copy) tiers.loaded.push_back({key, tier == Tier::resident, entry->is_pinned()});
    }
    for (const auto& [generation, copy] : copies) {
        tiers.resident_generations += copy->place == Copy::Place::resident;
        tiers.retired_generations += copy->aliases.empty();
    }
    tiers.leases = static_cast<int>(leases.size());
    tiers.host_used = host_used;
    tiers.host_capacity = core->settings.modules.host_bytes;
    tiers.device_used = device_used;
    tiers.device_capacity = core->settings.modules.device_bytes;
    if (core->metrics) {
        core->metrics->tiers(tiers);
        core->metrics->refused(refused);
    }
    self->send(peers->router, metrics_atom_v, reply);
}

CacheManagerActor::behavior_type cache_manager(CacheManagerActor::stateful_pointer<CacheManagerState> self,
                                               CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    return {
        [&state](wire_atom, const PeersPtr& peers) { state.wire(peers); },
        [&state](lease_atom, const LeaseAsk& ask) { state.lease(ask); },
        [&state](check_atom, const LeaseAsk& ask) -> caf::result<caf::ok_atom> {
            if (auto good = state.check(ask); !good) return to_caf(good.error());
            return caf::ok_atom_v;
        },
        [&state](greet_atom, const Greeting& greeting) { state.greet(greeting); },
        [&state](release_atom, RequestId id, bool keep_loading) { state.release(id, keep_loading); },
        [&state](park_atom, RequestId id) { state.park(id); },
        [&state](resume_atom, RequestId id) { return state.resume(id); },
        [&state](merged_atom, const Slots& slots) { state.note_merged(slots); },
        [&state](list_atom, const Caller& caller, const ListReply& reply) { state.list(caller, reply); },
        [&state](load_atom, const LoadOrder& order) { state.load_order(order); },
        [&state](order_atom, const NamedOrderPtr& order) { state.named_order(order); },
        [&state](prefetch_atom, const Names& names) { state.prefetch(names.list); },
        [&state](unload_atom, const Names& names) { state.unload_idle(names.list); },
        [&state](usage_atom) { state.tell_usage(); },
        [&state](expire_atom, std::uint64_t number) { state.expire(number); },
        [&state](tokenize_atom, const TokenizeTaskPtr& task) { state.tokenize(task); },
        [&state](reload_atom) { state.scan(); },
        [&state](metrics_atom, const TextReply& reply) { state.fill_metrics(reply); },
    };
}

}  // namespace attune
