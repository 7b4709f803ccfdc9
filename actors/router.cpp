#include "actors/router.hpp"

#include "actors/names.hpp"
#include "actors/resolve_modules.hpp"
#include "attune/cold_word.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace attune {
namespace {

const char* reason_of(Errc code) {
    switch (code) {
        case Errc::overloaded:
            return "overloaded";
        case Errc::unavailable:
            return "unavailable";
        case Errc::base_damaged:
            return "base_damaged";
        case Errc::unknown_model:
            return "unknown_model";
        case Errc::timeout:
            return "timeout";
        case Errc::cancelled:
            return "cancelled";
        case Errc::invalid_module:
            return "invalid_module";
        case Errc::invalid_argument:
        case Errc::context_exceeded:
            return "invalid";
        default:
            return "error";
    }
}

/// Shed for scheduler.slo_ttft_ms, as the metrics call it.
constexpr const char* kLateToken = "slo_ttft";

std::vector<std::string> names_of(const std::vector<WeightedModule>& modules) {
    std::vector<std::string> names;
    for (const WeightedModule& module : modules) names.push_back(module.name);
    return names;
}

}  // namespace

// ---------------------------------------------------------------- admission

Result<void> RouterState::admit(const GenerationRequest&) const {
    if (core->health->alarm) return base_damaged();
    if (core->health->draining) return make_error(Errc::unavailable, "the server is draining");
    if (lost_ || core->health->lost) return make_error(Errc::unavailable, "the engine is gone");
    if (flights_.size() >= static_cast<std::size_t>(std::max(1, core->settings.scheduler.queue)))
        return make_error(Errc::overloaded, "too many requests are waiting");
    return {};
}

Result<void> RouterState::check_first_token(const GenerationRequest& request, std::int64_t prompt_tokens) const {
    const double goal_s = core->settings.scheduler.slo_ttft_ms / 1000;
    if (goal_s <= 0) return {};
    const PromptLoad::Ahead ahead = core->prompt_load.ahead_of(request.priority);
    if (ahead.rows == 0 || ahead.rows_per_second <= 0) return {};
    // A prompt that would not make it alone either is judged by what is ahead of it: nobody is refused for good.
    const double own_s = static_cast<double>(prompt_tokens) / ahead.rows_per_second;
    const double needed_s = ahead.seconds() + (own_s <= goal_s ? own_s : 0);
    if (needed_s <= goal_s) return {};
    return make_error(Errc::overloaded, "the first token would come too late: " + std::to_string(ahead.rows) +
                                            " prompt tokens are ahead, which takes about " +
                                            std::to_string(std::llround(ahead.seconds() * 1000)) +
                                            " ms; scheduler.slo_ttft_ms is " +
                                            std::to_string(std::llround(goal_s * 1000)));
}

void RouterState::submit(const SubmissionPtr& submission) {
    const RequestId id = submission->request.id;
    const auto refuse = [&](const Error& error, const char* reason = nullptr) {
        if (core->metrics) core->metrics->rejected(reason != nullptr ? reason : reason_of(error.code));
        submission->sink->fail(error);
    };
    if (auto room = admit(submission->request); !room) return refuse(room.error());
    if (auto early = check_first_token(submission->request, 0); !early) return refuse(early.error(), kLateToken);
    if (flights_.contains(id)) return refuse(make_error(Errc::internal, "this request id is in use"));
    Flight flight;
    flight.submission = submission;
    auto decided = decide(flight);
    if (!decided) return refuse(decided.error());
    flight.task = std::make_shared<PrepareTask>();
    // The text goes along: what the router keeps of a request until its end must not grow with the body.
    Prompt text = std::exchange(submission->request.prompt, {});
    flight.task->request = submission->request;
    flight.task->request.prompt = std::move(text);
    flight.cancelled = flight.task->cancelled;
    Flight& kept = flights_.emplace(id, std::move(flight)).first->second;
    if (*decided) teach(kept);
    if (*decided) return routed(id, kept);
    kept.task->routes = book_.table();
    ask_preparer(id, kept, kept.task);
}

Result<bool> RouterState::decide(Flight& flight) const {
    const GenerationRequest& request = flight.request();
    const bool names_module = request.model != core->info.base_id && request.model != "auto";
    std::vector<WeightedModule> modules = request.modules;
    if (names_module) {
        const bool same = modules.size() == 1 && modules.front().name == request.model;
        if (!modules.empty() && !same)
            return make_error(Errc::invalid_argument,
                              "`model` names `" + request.model + "` and `attune.modules` names other modules",
                              "model");
        if (modules.empty()) modules.push_back(WeightedModule{request.model, 1.0});
    }
    for (WeightedModule& module : modules) module.name = module_name(module.name);
    if (request.model == "auto" && modules.empty()) return false;
    if (auto valid = check_modules(modules); !valid) return valid.error();
    flight.route = RouteDecision{"explicit", names_of(modules)};
    flight.modules = std::move(modules);
    flight.routed = true;
    return true;
}

Result<void> RouterState::check_modules(const std::vector<WeightedModule>& modules) const {
    const auto refuse = [](std::string text) { return make_error(Errc::invalid_argument, std::move(text), "modules"); };
    const int limit = core->settings.limits.modules;
    if (modules.size() > static_cast<std::size_t>(limit))
        return refuse("at most " + std::to_string(limit) + " modules may be named, not " +
                      std::to_string(modules.size()));
    std::set<std::string> seen;
    for (const WeightedModule& module : modules) {
        if (!std::isfinite(module.weight) || std::abs(module.weight) > kLargestWeight)
            return refuse("the weight of `" + module.name + "` must lie between -100 and 100");
        if (!seen.insert(module.name).second) return refuse("module `" + module.name + "` is named twice");
    }
    return {};
}

// ---------------------------------------------------------------- running

void RouterState::dispatch(RequestId id, Flight& flight, std::vector<JobModule> modules, ColdWord cold) {
    const GenerationRequest& request = flight.request();
    if (auto early = check_first_token(request, static_cast<std::int64_t>(flight.prompt->ids.size())); !early)
        return end(id, early.error(), kLateToken);
    flight.spare.reset();
    auto job = std::make_unique<Job>();
    job->id = id;
    job->prompt = std::move(flight.prompt->ids);
    job->sampling = std::move(flight.prompt->sampling);
    job->to_context_end = !request.sampling.max_tokens;
    job->modules = std::move(modules);
    const std::optional<Combine> own = flight.lease ? flight.lease->combine : std::nullopt;
    job->combine = request.combine.value_or(own.value_or(Combine::sequence));
    job->cache_salt = request.cache_salt;
    job->cold = cold;
    job->revise = flight.revises;
    job->route = flight.route;
    job->priority = request.priority;
    job->received = request.received;
    if (request.deadline_ms) job->deadline = request.received + std::chrono::milliseconds(*request.deadline_ms);
    job->sink = flight.submission->sink;
    if (core->metrics) {
        core->metrics->admitted(job->sampling.n, job->sampling.max_tokens.value_or(0), request.streamed);
        core->metrics->cold(std::string(cold_word(cold)));
    }
    flight.running = true;
    core->prompt_load.sent(job->priority, static_cast<std::int64_t>(job->prompt.size()));
    core->inbox->push(std::move(job));
}

/// No revision is waited for any more: the base's answer is the answer, now or when it comes to its end. Modules that
/// are resident before that still revise it.
void RouterState::keep_answer(RequestId id, Flight& flight) {
    if (std::exchange(flight.revises, false)) self->send(peers->executor, keep_atom_v, id);
}

void RouterState::switched(RequestId id, bool done) {
    const auto found = flights_.find(id);
    if (found == flights_.end() || done) return;
    release(id, found->second, /*keep_loading=*/false);  // the base goes on, so nothing holds the slots
}

void RouterState::release(RequestId id, Flight& flight, bool keep_loading) {
    if (!std::exchange(flight.leased, false)) return;
    self->send(peers->cache_manager, release_atom_v, id, keep_loading);
}

void RouterState::ended(const std::vector<RequestId>& ids) {
    for (const RequestId id : ids) forget(id);
}

void RouterState::cancel(RequestId id) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    if (found->second.running)
        self->send(peers->executor, cancel_atom_v, id);
    else
        end(id, make_error(Errc::cancelled, "cancelled"));
}

/// Ends a request that never reached the engine.
void RouterState::end(RequestId id, const Error& error, const char* reason) {
    const auto found = flights_.find(id);
    if (core->metrics) core->metrics->rejected(reason != nullptr ? reason : reason_of(error.code));
    found->second.submission->sink->fail(error);
    forget(id);
}

void RouterState::forget(RequestId id) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    if (found->second.cancelled) *found->second.cancelled = true;
    release(id, found->second, /*keep_loading=*/false);
    flights_.erase(found);
    if (!flights_.empty()) return;
    for (const DoneReply& reply : std::exchange(draining_, {})) (*reply)(true);
}

void RouterState::drain(const DoneReply& reply) {
    if (flights_.empty()) return (*reply)(true);
    draining_.push_back(reply);
}

void RouterState::quit_all() {
    std::vector<RequestId> ids;
    for (const auto& [id, flight] : flights_) ids.push_back(id);
    for (const RequestId id : ids) {
        if (flights_[id].running)
            self->send(peers->executor, cancel_atom_v, id);
        else
            end(id, make_error(Errc::unavailable, "the server is stopping"));
    }
}

void RouterState::part_lost() {
    lost_ = true;
    std::vector<RequestId> ids;
    for (const auto& [id, flight] : flights_) ids.push_back(id);
    for (const RequestId id : ids) {
        if (flights_[id].running) self->send(peers->executor, cancel_atom_v, id);
        end(id, make_error(Errc::unavailable, "a part of the server is gone"));
    }
}

// ---------------------------------------------------------------- metrics

void RouterState::metrics(const TextReply& reply) {
    if (!core->metrics) return (*reply)(std::string());
    std::set<std::string> running;
    std::set<std::string> waiting;
    int queued = 0;
    for (const auto& [id, flight] : flights_) {
        queued += !flight.running;
        for (const WeightedModule& module : flight.modules) (flight.running ? running : waiting).insert(module.name);
    }
    core->metrics->requests({running.begin(), running.end()}, {waiting.begin(), waiting.end()}, queued);
    (*reply)(core->metrics->text());
}

RouterActor::behavior_type router(RouterActor::stateful_pointer<RouterState> self, CorePtr core) {
    auto& state = self->state;
    state.self = self;
    state.core = std::move(core);
    state.start();
    return {
        [&state](wire_atom, const PeersPtr& peers) { state.peers = peers; },
        [&state](submit_atom, const SubmissionPtr& submission) { state.submit(submission); },
        [&state](cancel_atom, RequestId id) { state.cancel(id); },
        [&state](lease_atom, RequestId id, const LeaseNews& news) { state.lease_news(id, news); },
        [&state](ended_atom, const EndedBatch& batch) { state.ended(batch.ids); },
        [&state](switch_atom, RequestId id, bool done) { state.switched(id, done); },
        [&state](expire_atom, RequestId id) { state.expire(id); },
        [&state](tokenize_atom, const TokenizeTaskPtr& task) { state.tokenize(task); },
        [&state](routes_atom, const RoutesNewsPtr& news) { state.set_routes(news); },
        [&state](rules_atom, const Rules& rules) { state.set_rules(rules); },
        [&state](routes_atom, const Caller& caller, const RoutesReply& reply) { state.tell_routes(caller, reply); },
        [&state](routes_atom, const std::string& json, const Caller& caller, const RoutesReply& reply) {
            state.put_routes(json, caller, reply);
        },
        [&state](try_atom, const TrialPtr& trial) { state.try_route(trial); },
        [&state](greet_atom, const Greeting& greeting) { state.greet(greeting); },
        [&state](tick_atom) { state.look_at_file(); },
        [&state](drain_atom, const DoneReply& reply) { state.drain(reply); },
        [&state](quit_atom) { state.quit_all(); },
        [&state](lost_atom) { state.part_lost(); },
        [&state](metrics_atom, const TextReply& reply) { state.metrics(reply); },
    };
}

}  // namespace attune
