// modules.swap = strict: load_inplace refuses what PEFT's hotswap refuses, in its words. Relaxed, any module may follow
// any other: nothing is patched in place, a name moves from one checked generation to the next.

#include "actors/cache_manager.hpp"

#include "engine/module/hotswap.hpp"

#include <utility>

namespace attune {

/// The module that is to be replaced is loaded along, if it is not there, so that there is something to compare with.
/// One that cannot be loaded has nothing that a swap could break.
void CacheManagerState::compare_with(Lease& lease, const NamePtr& present) const {
    if (present->place || present->is_composition() || (present->failure && !present->copy) || !present->found.header)
        return;
    lease.parts.push_back(Lease::Part{present, 1.0, nullptr, nullptr});
    lease.compares = true;
}

/// What the name's first module had a place for; null when it never had one. Everything of the lease is in host memory.
std::shared_ptr<const SwapFacts> CacheManagerState::place_of(const Lease& lease, const NameEntry& present) {
    if (present.place) return present.place;
    if (present.copy) return present.copy->module->swap;
    return lease.compares ? lease.parts.back().copy->module->swap : nullptr;
}

/// The last question before the name moves; the name's places are remembered then.
Result<void> CacheManagerState::check_swap(const Lease& lease) {
    if (!is_strict() || !lease.inplace) return {};
    const SwapFacts& next = *lease.parts.front().copy->module->swap;
    const auto present = names.find(lease.parts.front().name->name());
    if (present == names.end()) return unknown_hotswap(next);
    const NameEntry& entry = *present->second;
    if (entry.copy && entry.copy->merged) return merged_hotswap(entry.name());
    const auto place = place_of(lease, entry);
    if (!place) return {};
    auto allowed = check_hotswap(*place, next);
    if (allowed) present->second->place = place;
    return allowed;
}

void CacheManagerState::forget_compared(Lease& lease) {
    if (!std::exchange(lease.compares, false)) return;
    const CopyPtr compared = lease.parts.back().copy;
    lease.parts.pop_back();
    --compared->leases;
    drop_if_unused(compared);
}

}  // namespace attune
