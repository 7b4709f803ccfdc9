// What one owner's modules may hold of the memory that everybody shares (limits.owner_bytes, limits.owner_modules).

#include "actors/cache_manager.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

struct Holding {
    std::uint64_t bytes = 0;
    std::uint64_t modules = 0;
};

std::uint64_t bytes_of(const Copy& copy) {
    return copy.module->host_bytes + (copy.place == Copy::Place::host ? 0 : copy.slot_bytes);
}

std::string told(const std::string& owner, const Holding& need, const LimitSettings& limits) {
    return "the modules of owner `" + owner + "` would be " + std::to_string(need.modules) + " in memory with " +
           std::to_string(need.bytes) + " bytes; limits.owner_modules is " + std::to_string(limits.owner_modules) +
           " and limits.owner_bytes " + std::to_string(limits.owner_bytes) + " (0: no limit)";
}

}  // namespace

/// Before a lease takes memory: what each of its owners would hold, in host memory and in slots, must be allowed. An
/// owner's own idle modules leave for it, as modules.eviction says; nobody else's do. A set that alone is beyond the
/// limit is the request's fault; else it is asked to come again.
Result<void> CacheManagerState::make_owner_room(const Lease& lease) {
    const LimitSettings& limits = core->settings.limits;
    if (limits.owner_bytes == 0 && limits.owner_modules == 0) return {};
    const auto is_over = [&](const Holding& held) {
        return (limits.owner_bytes > 0 && held.bytes > limits.owner_bytes) ||
               (limits.owner_modules > 0 && held.modules > static_cast<std::uint64_t>(limits.owner_modules));
    };
    std::set<std::string> owners;
    for (const Lease::Part& part : lease.parts)
        if (!part.name->owner().empty()) owners.insert(part.name->owner());
    for (const std::string& owner : owners) {
        Holding need;
        bool is_new = false;
        std::set<CopyPtr> wanted;
        for (const Lease::Part& part : lease.parts) {
            const NameEntry& entry = *part.name;
            if (entry.owner() != owner) continue;
            if (entry.copy && !wanted.insert(entry.copy).second) continue;
            ++need.modules;
            need.bytes += entry.copy ? entry.copy->module->host_bytes + entry.copy->slot_bytes
                                     : entry.parsed_bytes() + entry.known_slot_bytes;
            is_new = is_new || (!entry.copy && !load_in_flight(entry)) ||
                     (entry.copy && entry.copy->place == Copy::Place::host);
        }
        if (is_over(need)) return make_error(Errc::invalid_argument, told(owner, need, limits), "model");
        if (!is_new) continue;

        Holding held = need;
        std::set<CopyPtr> others;
        std::vector<CopyPtr> evictable;
        for (const auto& [unused, entry] : names) {
            const CopyPtr& copy = entry->copy;
            if (entry->owner() != owner || !copy || wanted.contains(copy) || !others.insert(copy).second) continue;
            held.bytes += bytes_of(*copy);
            ++held.modules;
            if (copy->idle() && !copy->pinned()) evictable.push_back(copy);
        }
        for (const LoadPtr& load : loads) {
            const bool is_ours = std::any_of(lease.parts.begin(), lease.parts.end(), [&](const Lease::Part& part) {
                return load_in_flight(*part.name) == load;
            });
            if (is_ours || load->names.empty() || load->names.front()->owner() != owner) continue;
            held.bytes += load->reserved;
            ++held.modules;
        }
        for (const auto& [worth, copy] : leaving_order(evictable, &Copy::host_worth)) {
            // A prefetch takes free room only: an owner's hot modules must not push each other out for ever.
            if (!is_over(held) || lease.give_up) break;
            held.bytes -= bytes_of(*copy);
            --held.modules;
            evict(copy);
        }
        if (is_over(held)) return make_error(Errc::overloaded, told(owner, held, limits), "model");
    }
    return {};
}

}  // namespace attune
