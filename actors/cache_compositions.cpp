// Named compositions: they have no memory of their own, so what is said of one is said of its members.

#include "actors/cache_manager.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace attune {
namespace {

/// The coldest first; one that cannot be had is colder than all.
int warmth(Tier tier) {
    switch (tier) {
        case Tier::failed:
            return 0;
        case Tier::cold:
            return 1;
        case Tier::loading:
            return 2;
        case Tier::host:
            return 3;
        case Tier::resident:
            return 4;
    }
    return 0;
}

}  // namespace

/// Those of its members that exist, in its own order.
std::vector<NamePtr> CacheManagerState::members_of(const NameEntry& composition) const {
    std::vector<NamePtr> members;
    if (!composition.is_composition()) return members;
    for (const WeightedModule& member : composition.found.header->members)
        if (const auto found = names.find(member.name); found != names.end()) members.push_back(found->second);
    return members;
}

Result<void> CacheManagerState::check_members(const NameEntry& composition, const Caller& caller) const {
    if (!composition.is_composition()) return {};
    for (const WeightedModule& member : composition.found.header->members) {
        const NamePtr entry = find(member.name, caller);
        const std::string who = "composition `" + composition.name() + "`, member `" + member.name + "`: ";
        if (!entry) return make_error(Errc::unknown_model, who + unknown_module(member.name).message);
        if (entry->is_composition()) return make_error(Errc::invalid_argument, who + "it is a composition too");
    }
    return {};
}

ModuleStatus CacheManagerState::status(const NameEntry& entry) const {
    ModuleStatus status = status_of(entry);
    if (!entry.is_composition()) return status;
    const ModuleHeader& header = *entry.found.header;
    status.members = header.members;
    status.combine = header.combine;
    status.tier = Tier::resident;
    std::set<std::string> targets;
    for (const WeightedModule& member : header.members) {
        const auto found = names.find(member.name);
        const std::string who = "member `" + member.name + "`: ";
        if (found == names.end()) {
            status.tier = Tier::failed;
            status.last_error = who + unknown_module(member.name).message;
            continue;
        }
        const ModuleStatus one = status_of(*found->second);
        if (warmth(one.tier) < warmth(status.tier)) status.tier = one.tier;
        if (one.last_error && !status.last_error) status.last_error = who + *one.last_error;
        status.rank = std::max(status.rank, one.rank);
        targets.insert(one.targets.begin(), one.targets.end());
    }
    status.targets.assign(targets.begin(), targets.end());
    return status;
}

/// Names come and go, so who is pinned through whom is counted afresh.
void CacheManagerState::refresh_pins() {
    for (const auto& [unused, entry] : names) entry->pinned_by = 0;
    for (const auto& [unused, entry] : names) {
        if (!entry->pinned) continue;
        for (const NamePtr& member : members_of(*entry)) ++member->pinned_by;
    }
}

/// A pin is a wish of the house's own: the module, or each member, becomes resident as soon as there is room.
void CacheManagerState::pin(const NamePtr& entry) {
    for (const NamePtr& one : entry->is_composition() ? members_of(*entry) : std::vector<NamePtr>{entry})
        if (!is_wished(one)) own_lease(one, false);
}

}  // namespace attune
