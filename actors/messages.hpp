#pragma once

#include "attune/clock.hpp"
#include "attune/gateway.hpp"
#include "attune/route_rule.hpp"

#include <caf/all.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/module_files.hpp"
#include "actors/once.hpp"
#include "actors/prepare.hpp"
#include "actors/route_book.hpp"
#include "engine/engine.hpp"

namespace attune {

struct Peers;
/// Every actor's handle, told to all of them after each spawn (actors/interfaces.hpp).
using PeersPtr = std::shared_ptr<const Peers>;

/// A request on its way from net to the router.
struct Submission {
    GenerationRequest request;
    std::shared_ptr<OnceSink> sink;
};
using SubmissionPtr = std::shared_ptr<Submission>;

/// router -> cache_manager: look the names up and lease what they stand for, in one message.
struct LeaseAsk {
    RequestId id{};
    std::vector<WeightedModule> modules;
    std::optional<ColdPolicy> cold;
    std::optional<Combine> combine;  ///< the request's own; none: the compositions' must agree
    Caller caller;
};

/// cache_manager -> router, once or twice per lease: first `cold` or `warm` unless `ready` comes at once, then `ready`
/// or `failed`.
struct LeaseNews {
    enum class Kind : std::uint8_t { cold, warm, ready, failed } kind = Kind::failed;
    bool was_cold = false;                 ///< with `ready`: something had to be loaded, or waited for room
    ColdPolicy policy = ColdPolicy::wait;  ///< request > manifest > setting
    bool own_text = false;                 ///< prompts are prepared when the lease is ready: `texts` tells how
    std::vector<JobModule> modules;        ///< with `ready`, in the order they act in
    std::optional<Combine> combine;        ///< what a composition says, if one was asked for
    std::vector<NamedText> texts;          ///< with `ready`
    Error error;                           ///< with `failed`
};

struct EndedBatch {
    std::vector<RequestId> ids;
};

/// auditor -> executor: tensors of the base that are not what was loaded, and when all of them still were.
struct Damage {
    std::vector<std::size_t> tensors;  ///< as BaseAudit counts them
    TimePoint good{};
};

struct JobModules {
    std::vector<JobModule> list;
};

struct Slots {
    std::vector<SlotId> list;
};

struct Names {
    std::vector<std::string> list;
};

template <class Request, class Answer>
struct Order {
    Request request;
    OnceReplyPtr<Answer> reply;
};
using LoadOrder = std::shared_ptr<Order<LoadModuleRequest, ModuleStatus>>;

struct NamedOrder {
    std::string name;
    std::optional<ModuleOrder> order;  ///< absent: remove the name
    Caller caller;
    OnceReplyPtr<ModuleStatus> reply;
};
using NamedOrderPtr = std::shared_ptr<NamedOrder>;

using ListReply = OnceReplyPtr<std::vector<ModuleStatus>>;
using ModuleList = std::shared_ptr<std::vector<ModuleStatus>>;
using TextReply = OnceReplyPtr<std::string>;
using AuditReply = OnceReplyPtr<AuditStatus>;
using DoneReply = OnceReplyPtr<bool>;
using RoutesReply = OnceReplyPtr<RoutesStatus>;

/// A request that asks where it would go: no generation.
struct Trial {
    std::shared_ptr<PrepareTask> task;
    RouteDecision decision;
    std::vector<WeightedModule> modules;
    OnceReplyPtr<RouteTrial> reply;
};
using TrialPtr = std::shared_ptr<Trial>;

/// A connection's user came or left: gateway -> router (whose modules are these?) -> cache_manager (which may the
/// caller use?) -> trigger.
struct Greeting {
    std::string user;
    Caller caller;
    bool leaves = false;
    std::vector<std::string> modules = {};
};

/// cache_manager -> trigger: what is loaded, for its plan.
struct CacheUsage {
    struct Loaded {
        std::string name;
        bool busy = false;  ///< leased or on its way
        bool pinned = false;
        std::uint64_t bytes = 0;
    };
    std::vector<Loaded> loaded;
    std::uint64_t host_used = 0, host_capacity = 0;  ///< bytes
    std::uint64_t device_used = 0, device_capacity = 0;
};
using CacheUsagePtr = std::shared_ptr<const CacheUsage>;

/// Errors cross actors as caf::error: code, then message and param as context.
caf::error to_caf(const Error& error);
/// Errors of CAF itself (a peer is gone, a time-out) become Errc::unavailable.
Error from_caf(const caf::error& error);

/// The system configuration every program and test of the house starts from: message types and error texts.
class HouseConfig : public caf::actor_system_config {
public:
    HouseConfig();
};

}  // namespace attune

CAF_BEGIN_TYPE_ID_BLOCK(attune, first_custom_type_id)

CAF_ADD_TYPE_ID(attune, (attune::RequestId))
CAF_ADD_TYPE_ID(attune, (attune::SlotId))
CAF_ADD_TYPE_ID(attune, (attune::PeersPtr))
CAF_ADD_TYPE_ID(attune, (attune::SubmissionPtr))
CAF_ADD_TYPE_ID(attune, (attune::LeaseAsk))
CAF_ADD_TYPE_ID(attune, (attune::LeaseNews))
CAF_ADD_TYPE_ID(attune, (attune::EndedBatch))
CAF_ADD_TYPE_ID(attune, (attune::Damage))
CAF_ADD_TYPE_ID(attune, (attune::JobModules))
CAF_ADD_TYPE_ID(attune, (attune::Names))
CAF_ADD_TYPE_ID(attune, (attune::Slots))
CAF_ADD_TYPE_ID(attune, (attune::ModulePtr))
CAF_ADD_TYPE_ID(attune, (attune::LoadOrder))
CAF_ADD_TYPE_ID(attune, (attune::NamedOrderPtr))
CAF_ADD_TYPE_ID(attune, (attune::Caller))
CAF_ADD_TYPE_ID(attune, (attune::ListReply))
CAF_ADD_TYPE_ID(attune, (attune::ModuleList))
CAF_ADD_TYPE_ID(attune, (attune::TextReply))
CAF_ADD_TYPE_ID(attune, (attune::AuditReply))
CAF_ADD_TYPE_ID(attune, (attune::DoneReply))
CAF_ADD_TYPE_ID(attune, (attune::Rules))
CAF_ADD_TYPE_ID(attune, (attune::RoutesTaskPtr))
CAF_ADD_TYPE_ID(attune, (attune::RoutesNewsPtr))
CAF_ADD_TYPE_ID(attune, (attune::RoutesReply))
CAF_ADD_TYPE_ID(attune, (attune::TrialPtr))
CAF_ADD_TYPE_ID(attune, (attune::Greeting))
CAF_ADD_TYPE_ID(attune, (attune::CacheUsagePtr))
CAF_ADD_TYPE_ID(attune, (attune::LoaderTaskPtr))
CAF_ADD_TYPE_ID(attune, (attune::LoaderDonePtr))
CAF_ADD_TYPE_ID(attune, (attune::PrepareTaskPtr))
CAF_ADD_TYPE_ID(attune, (attune::PreparedPtr))
CAF_ADD_TYPE_ID(attune, (attune::TokenizeTaskPtr))

CAF_ADD_ATOM(attune, attune, step_atom, "step")
CAF_ADD_ATOM(attune, attune, wire_atom, "wire")
CAF_ADD_ATOM(attune, attune, peers_atom, "peers")
CAF_ADD_ATOM(attune, attune, submit_atom, "submit")
CAF_ADD_ATOM(attune, attune, cancel_atom, "cancel")
CAF_ADD_ATOM(attune, attune, lease_atom, "lease")
CAF_ADD_ATOM(attune, attune, release_atom, "release")
CAF_ADD_ATOM(attune, attune, ended_atom, "ended")
CAF_ADD_ATOM(attune, attune, expire_atom, "expire")
CAF_ADD_ATOM(attune, attune, install_atom, "install")
CAF_ADD_ATOM(attune, attune, remove_atom, "remove")
CAF_ADD_ATOM(attune, attune, switch_atom, "switch")
CAF_ADD_ATOM(attune, attune, keep_atom, "keep")
CAF_ADD_ATOM(attune, attune, prepare_atom, "prepare")
CAF_ADD_ATOM(attune, attune, tokenize_atom, "tokenize")
CAF_ADD_ATOM(attune, attune, rules_atom, "rules")
CAF_ADD_ATOM(attune, attune, routes_atom, "routes")
CAF_ADD_ATOM(attune, attune, drain_atom, "drain")
CAF_ADD_ATOM(attune, attune, quit_atom, "quit")
CAF_ADD_ATOM(attune, attune, lost_atom, "lost")
CAF_ADD_ATOM(attune, attune, work_atom, "work")
CAF_ADD_ATOM(attune, attune, load_atom, "load")
CAF_ADD_ATOM(attune, attune, order_atom, "order")
CAF_ADD_ATOM(attune, attune, list_atom, "list")
CAF_ADD_ATOM(attune, attune, prefetch_atom, "prefetch")
CAF_ADD_ATOM(attune, attune, unload_atom, "unload")
CAF_ADD_ATOM(attune, attune, usage_atom, "usage")
CAF_ADD_ATOM(attune, attune, hit_atom, "hit")
CAF_ADD_ATOM(attune, attune, tick_atom, "tick")
CAF_ADD_ATOM(attune, attune, audit_atom, "audit")
CAF_ADD_ATOM(attune, attune, damage_atom, "damage")
CAF_ADD_ATOM(attune, attune, repair_atom, "repair")
CAF_ADD_ATOM(attune, attune, reload_atom, "reload")
CAF_ADD_ATOM(attune, attune, metrics_atom, "metrics")
CAF_ADD_ATOM(attune, attune, try_atom, "try")
CAF_ADD_ATOM(attune, attune, check_atom, "check")
CAF_ADD_ATOM(attune, attune, greet_atom, "greet")
CAF_ADD_ATOM(attune, attune, learn_atom, "learn")
CAF_ADD_ATOM(attune, attune, park_atom, "park")
CAF_ADD_ATOM(attune, attune, resume_atom, "resume")
CAF_ADD_ATOM(attune, attune, merged_atom, "merged")

CAF_END_TYPE_ID_BLOCK(attune)

CAF_ERROR_CODE_ENUM(attune::Errc, "attune")

// None of these leaves the process.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::PeersPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::SubmissionPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::LeaseAsk)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::LeaseNews)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::EndedBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Damage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::JobModules)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Names)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Slots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::ModulePtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::LoadOrder)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::NamedOrderPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Caller)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::ListReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::ModuleList)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::TextReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::AuditReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::DoneReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Rules)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::RoutesTaskPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::RoutesNewsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::RoutesReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::TrialPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::Greeting)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::CacheUsagePtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::LoaderTaskPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::LoaderDonePtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::PrepareTaskPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::PreparedPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(attune::TokenizeTaskPtr)
