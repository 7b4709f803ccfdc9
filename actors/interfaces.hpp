#pragma once

#include "actors/messages.hpp"

#include <caf/all.hpp>

#include <vector>

namespace attune {

using ExecutorActor =
    caf::typed_actor<caf::reacts_to<wire_atom, PeersPtr>,
                     // One engine step. Sent by the inbox's bell and, while work remains, by the executor itself.
                     caf::reacts_to<step_atom>,
                     // The request leaves the engine before the next step. Jobs pushed before are taken in first.
                     caf::reacts_to<cancel_atom, RequestId>,
                     // From the next step on, these modules make the request's tokens (cold policy upgrade), or its
                     // whole answer again (revise).
                     caf::reacts_to<switch_atom, RequestId, JobModules>,
                     // Cold policy revise: the base's answer waits for these modules no longer.
                     caf::reacts_to<keep_atom, RequestId>,
                     // Makes a module usable from the next step on.
                     caf::replies_to<install_atom, ModulePtr>::with<SlotId>,
                     // Frees a slot that no request uses.
                     caf::reacts_to<remove_atom, SlotId>,
                     // From the auditor: writes these tensors as they were loaded, and goes on. False, and why: nobody
                     // is answered any more.
                     caf::replies_to<repair_atom, Damage>::with<bool, std::string>>;

using RouterActor =
    caf::typed_actor<caf::reacts_to<wire_atom, PeersPtr>, caf::reacts_to<submit_atom, SubmissionPtr>,
                     caf::reacts_to<cancel_atom, RequestId>,
                     // From the cache_manager: how a lease stands.
                     caf::reacts_to<lease_atom, RequestId, LeaseNews>,
                     // From the executor: these requests left the engine.
                     caf::reacts_to<ended_atom, EndedBatch>,
                     // From the executor: the switch was made, or the request could not be switched.
                     caf::reacts_to<switch_atom, RequestId, bool>,
                     // Its own delayed message: a request waited for its module, or lived, long enough.
                     caf::reacts_to<expire_atom, RequestId>, caf::reacts_to<tokenize_atom, TokenizeTaskPtr>,
                     // The rules of routes.toml or why they cannot be taken, and those of the trusted manifests.
                     caf::reacts_to<routes_atom, RoutesNewsPtr>, caf::reacts_to<rules_atom, Rules>,
                     // The rules in force; rules to be put in force; where a request would go.
                     caf::reacts_to<routes_atom, Caller, RoutesReply>,
                     caf::reacts_to<routes_atom, std::string, Caller, RoutesReply>, caf::reacts_to<try_atom, TrialPtr>,
                     // A connection's user came or left.
                     caf::reacts_to<greet_atom, Greeting>,
                     // Its own delayed message: has the routes file changed?
                     caf::reacts_to<tick_atom>,
                     // Answers when no request is left.
                     caf::reacts_to<drain_atom, DoneReply>,
                     // Ends every request now.
                     caf::reacts_to<quit_atom>,
                     // The executor or the cache_manager is gone: nothing can be answered any more.
                     caf::reacts_to<lost_atom>,
                     // The text of /metrics, after the cache_manager has filled in its gauges.
                     caf::reacts_to<metrics_atom, TextReply>>;

using CacheManagerActor = caf::typed_actor<
    caf::reacts_to<wire_atom, PeersPtr>,
    // Look-up and lease in one message; news go to the router.
    caf::reacts_to<lease_atom, LeaseAsk>,
    // Whether that lease could be had now; an error says why not.
    caf::replies_to<check_atom, LeaseAsk>::with<caf::ok_atom>,
    // The request needs its modules no longer. True: what was being loaded for it is loaded all the same.
    caf::reacts_to<release_atom, RequestId, bool>,
    // From the executor: the request was preempted and needs its slots no longer; it goes on and needs them again, all
    // at once.
    caf::reacts_to<park_atom, RequestId>, caf::replies_to<resume_atom, RequestId>::with<JobModules>,
    // From the executor: these slots' modules, and no others, lie in the base's weights.
    caf::reacts_to<merged_atom, Slots>, caf::reacts_to<list_atom, Caller, ListReply>,
    caf::reacts_to<load_atom, LoadOrder>, caf::reacts_to<order_atom, NamedOrderPtr>,
    // From the trigger.
    caf::reacts_to<prefetch_atom, Names>, caf::reacts_to<unload_atom, Names>, caf::reacts_to<usage_atom>,
    // From the router: a user's modules are fetched as far as the caller may use them, and the trigger is told.
    caf::reacts_to<greet_atom, Greeting>,
    // Its own delayed message: a load (by its number) took too long.
    caf::reacts_to<expire_atom, std::uint64_t>,
    // Checks that the model named exists for the caller, then hands on to the router.
    caf::reacts_to<tokenize_atom, TokenizeTaskPtr>,
    // Looks at the module roots again.
    caf::reacts_to<reload_atom>, caf::reacts_to<metrics_atom, TextReply>>;

using LoaderActor = caf::typed_actor<caf::replies_to<work_atom, LoaderTaskPtr>::with<LoaderDonePtr>>;

using PreparerActor = caf::typed_actor<caf::replies_to<prepare_atom, PrepareTaskPtr>::with<PreparedPtr>,
                                       caf::reacts_to<tokenize_atom, TokenizeTaskPtr>,
                                       // Looks at the routes file, or checks rules.
                                       caf::replies_to<routes_atom, RoutesTaskPtr>::with<RoutesNewsPtr>,
                                       // Its own message: what a prepared request teaches the classifier.
                                       caf::reacts_to<learn_atom, PrepareTaskPtr>>;

using TriggerActor = caf::typed_actor<caf::reacts_to<wire_atom, PeersPtr>,
                                      // A request named these modules.
                                      caf::reacts_to<hit_atom, Names>,
                                      // An operator unloaded these: they are not hot any more.
                                      caf::reacts_to<unload_atom, Names>,
                                      // A user's connection came or left.
                                      caf::reacts_to<greet_atom, Greeting>,
                                      // Its own delayed message: time to plan.
                                      caf::reacts_to<tick_atom>, caf::reacts_to<usage_atom, CacheUsagePtr>,
                                      // Fills in hits per minute and answers.
                                      caf::reacts_to<list_atom, ModuleList, ListReply>>;

using AuditorActor =
    caf::typed_actor<caf::reacts_to<wire_atom, PeersPtr>,
                     // From the executor: a tensor is not what was loaded, as this text says. It has stopped.
                     caf::reacts_to<damage_atom, std::string>,
                     // Its own delayed message: one slice of the background pass.
                     caf::reacts_to<tick_atom>,
                     // One slice of a pass that was asked for.
                     caf::reacts_to<step_atom>,
                     // The present state; true: after a full pass.
                     caf::reacts_to<audit_atom, bool, AuditReply>>;

using SupervisorActor = caf::typed_actor<
    // Everybody's handles as they are now.
    caf::replies_to<peers_atom>::with<PeersPtr>, caf::reacts_to<audit_atom, bool, AuditReply>>;

struct Peers {
    ExecutorActor executor;
    RouterActor router;
    CacheManagerActor cache_manager;
    TriggerActor trigger;
    AuditorActor auditor;
    std::vector<LoaderActor> loaders;
    std::vector<PreparerActor> preparers;  ///< the last one serves /tokenize and /detokenize, the others requests
};

}  // namespace attune
