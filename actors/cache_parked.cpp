// What the executor tells: preempted requests leave their slots and come back, modules are merged.

#include "actors/cache_manager.hpp"

#include <algorithm>

namespace attune {

/// The slots are free for others; the copies stay in host memory.
void CacheManagerState::park(RequestId id) {
    const auto found = leases.find(id);
    if (found == leases.end() || found->second->stage != Lease::Stage::ready) return;
    Lease& lease = *found->second;
    lease.stage = Lease::Stage::parked;
    ++releases;
    for (Lease::Part& part : lease.parts) {
        --part.copy->users;
        part.copy->last_used = core->now();
    }
    pump();
}

/// Into the line again, at its old place.
caf::result<JobModules> CacheManagerState::resume(RequestId id) {
    const auto found = leases.find(id);
    if (found == leases.end() || found->second->stage != Lease::Stage::parked)
        return to_caf(make_error(Errc::cancelled, "the request has ended"));
    const LeasePtr& lease = found->second;
    lease->stage = Lease::Stage::placing;
    lease->since = core->now();
    auto promise = self->make_response_promise<JobModules>();
    lease->resumes = promise;
    line.insert(std::ranges::find_if(line, [&](const LeasePtr& other) { return other->number > lease->number; }),
                lease);
    pump();
    return promise;
}

void CacheManagerState::note_merged(const Slots& slots) {
    for (const auto& [generation, copy] : copies)
        copy->merged = copy->place == Copy::Place::resident &&
                       std::find(slots.list.begin(), slots.list.end(), copy->slot) != slots.list.end();
}

}  // namespace attune
