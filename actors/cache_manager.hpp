#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"
#include "actors/module_table.hpp"

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace attune {

/// Names, generations, tiers, leases and bytes: it alone says what is resident.
///
/// Bytes are granted in one order: host bytes for a request's whole set, then slot bytes for its whole set. Whoever
/// waits for slots already holds its host bytes and whoever runs waits for nothing, so no two requests ever wait for
/// each other's half. Waiting requests are served in arrival order, those that fit first; one that waited for
/// scheduler.drain_ms stops the others from taking room, and the busiest-to-free modules from taking new requests.
struct CacheManagerState {
    static inline const char* name = "cache_manager";
    static constexpr std::size_t kQueuedTasks = 1024;  ///< look-ups for load orders waiting for a loader

    CacheManagerActor::pointer self = nullptr;
    CorePtr core;
    PeersPtr peers;

    // --- cache_manager.cpp: messages
    void wire(const PeersPtr& next);
    void lease(const LeaseAsk& ask);
    Result<void> check(const LeaseAsk& ask);
    void release(RequestId id, bool keep_loading);
    void list(const Caller& caller, const ListReply& reply);
    void prefetch(const std::vector<std::string>& names);
    void greet(Greeting greeting);
    void unload_idle(const std::vector<std::string>& names);
    void tell_usage();
    void tokenize(const TokenizeTaskPtr& task);
    void scan();
    void fill_metrics(const TextReply& reply);

    // --- cache_orders.cpp: what operators ask for
    void load_order(const LoadOrder& order);
    void look_up(const LoadOrder& order);
    void start_order(const LoadOrder& order, FoundModule found);
    void named_order(const NamedOrderPtr& order);
    void order_load(const NamePtr& entry, const OnceReplyPtr<ModuleStatus>& reply);
    void order_unload(const NamePtr& entry, const OnceReplyPtr<ModuleStatus>& reply);
    LeasePtr own_lease(const NamePtr& entry, bool give_up);
    bool is_wished(const NamePtr& entry) const;
    void finish_own(const LeasePtr& lease);
    Result<void> commit(Lease& lease);
    void expire(std::uint64_t number);

    // --- cache_parked.cpp: what the executor tells
    void park(RequestId id);
    caf::result<JobModules> resume(RequestId id);
    void note_merged(const Slots& slots);

    // --- cache_loads.cpp: loaders, host bytes
    struct Task {
        LoaderTaskPtr task;
        LoadPtr load;  ///< null: a scan or a look-up
        std::function<void(Result<LoaderDonePtr>)> done;
        int attempts = 0;
    };
    struct LoaderSlot {
        LoaderActor actor;
        bool free = false;
        std::uint64_t wired = 0;  ///< tells an answer of a former actor from one of the present
    };
    void enqueue(Task task);
    void dispatch();
    void run(std::size_t loader, Task task);
    bool try_hold(Lease& lease);
    bool make_host_room(std::uint64_t bytes, const Lease& keep);
    LoadPtr load_in_flight(const NameEntry& entry) const;
    void start_load(const NamePtr& entry);
    void abandon(const LoadPtr& load);
    void loaded(const LoadPtr& load, Result<ModulePtr> result);
    void fail_load(const LoadPtr& load, const Error& error);
    CopyPtr keep_copy(const ModulePtr& module, double load_seconds);
    void evict(const CopyPtr& copy);
    void drop_if_unused(const CopyPtr& copy);
    std::uint64_t host_need(const Lease& lease) const;
    std::uint64_t prefetch_limit() const;
    void stamp(Copy& copy) const;
    struct Leaving {
        double worth = 0;
        CopyPtr copy;
    };
    std::vector<Leaving> leaving_order(const std::vector<CopyPtr>& evictable,
                                       double (Copy::*worth)(double hits) const) const;

    // --- cache_owners.cpp: what one owner may hold
    Result<void> make_owner_room(const Lease& lease);

    // --- cache_slots.cpp: slots, the line of waiting leases
    void pump();
    void advance(const LeasePtr& lease);
    bool try_place(Lease& lease);
    bool make_device_room(std::uint64_t bytes, const Lease* keep);
    void install(const CopyPtr& copy);
    void installed(const CopyPtr& copy, const Result<SlotId>& result);
    void not_installed(const CopyPtr& copy, const Error& error);
    void leave_slot(const CopyPtr& copy);
    void became_ready(const LeasePtr& lease);
    static std::vector<JobModule> job_modules(const Lease& lease);
    void fail(LeasePtr lease, const Error& error);
    void let_go(Lease& lease);
    bool can_be_served(const Lease& lease) const;
    void choose_handover();
    std::uint64_t device_need(const Lease& lease) const;
    Result<void> check_fits(const Lease& lease) const;

    // --- cache_compositions.cpp: names that stand for others
    ModuleStatus status(const NameEntry& entry) const;
    std::vector<NamePtr> members_of(const NameEntry& composition) const;
    Result<void> check_members(const NameEntry& composition, const Caller& caller) const;
    void refresh_pins();
    void pin(const NamePtr& entry);

    // --- cache_swaps.cpp: load_inplace
    bool is_strict() const { return core->settings.modules.swap == "strict"; }
    void compare_with(Lease& lease, const NamePtr& present) const;
    static std::shared_ptr<const SwapFacts> place_of(const Lease& lease, const NameEntry& present);
    Result<void> check_swap(const Lease& lease);
    void forget_compared(Lease& lease);

    // --- cache_names.cpp: the name table
    NamePtr find(const std::string& name, const Caller& caller) const;
    void apply_scan(ScanResult scan);
    void remove_name(const NamePtr& entry);
    void make_cold(const NamePtr& entry);
    void unlink(const NamePtr& entry);
    void send_rules();
    LeasePtr new_lease(std::optional<RequestId> request);
    Result<void> fill(Lease& lease, const LeaseAsk& ask) const;
    Result<void> check_generations(const Lease& lease) const;
    ColdPolicy policy_for(const LeaseAsk& ask, const Lease& lease) const;
    void tell(const Lease& lease, LeaseNews news);

    std::map<std::string, NamePtr> names;
    std::map<std::string, CopyPtr> copies;     ///< by generation
    std::map<std::string, LeasePtr> arriving;  ///< names that a load order is about to make
    std::vector<LoadPtr> loads;
    std::map<RequestId, LeasePtr> leases;
    std::list<LeasePtr> line;  ///< not ready yet, in arrival order
    std::vector<LoaderSlot> loaders;
    std::deque<Task> tasks;
    LeasePtr starving;
    std::uint64_t host_used = 0;    ///< parsed copies and reservations
    std::uint64_t device_used = 0;  ///< slots, also those being installed
    KeepOrder host_order;
    KeepOrder slot_order;
    std::uint64_t numbers = 0;
    std::int64_t releases = 0;
    int refused = 0;
    bool scanned = false;
};

CacheManagerActor::behavior_type cache_manager(CacheManagerActor::stateful_pointer<CacheManagerState> self,
                                               CorePtr core);

}  // namespace attune
