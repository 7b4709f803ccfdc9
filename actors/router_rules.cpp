// The router's rules: where they come from, what they choose, and for whom modules are fetched ahead.

#include "actors/module_table.hpp"
#include "actors/router.hpp"
#include "attune/log.hpp"

#include <utility>

namespace attune {
namespace {

/// What the next rule may make good: the rules named these modules, not the client.
bool is_passed_over(Errc code) {
    switch (code) {
        case Errc::unknown_model:     // not there, or another owner's
        case Errc::invalid_module:    // failed for good
        case Errc::unavailable:       // failed, not to be tried again yet
        case Errc::invalid_argument:  // the set contradicts itself or can never fit
        case Errc::unsupported:
            return true;
        default:
            return false;
    }
}

}  // namespace

// ---------------------------------------------------------------- where rules come from

void RouterState::start() {
    book_.set_default(core->settings.routing.default_module);
    if (core->routes.stamp && core->routes.read) self->delayed_send(self, kLook, tick_atom_v);
}

void RouterState::set_routes(const RoutesNewsPtr& news) {
    if (!news->changed) return;
    if (!news->rules && news->from_file)
        log(LogLevel::error, "the routing rules stay as they are: " + news->rules.error().message);
    if (core->metrics) core->metrics->routes(news->from_file, bool(news->rules));
    book_.take(*news, unix_seconds());
}

void RouterState::set_rules(const Rules& rules) { book_.set_manifest_rules(rules); }

/// The next look is planned when this one is over, so a slow disk has one at a time.
void RouterState::look_at_file() {
    const auto again = [this] { self->delayed_send(self, kLook, tick_atom_v); };
    if (!peers) return again();
    auto task = std::make_shared<const RoutesTask>(book_.look());
    self->request(peers->preparers.back(), caf::infinite, routes_atom_v, RoutesTaskPtr(task))
        .then(
            [this, again](const RoutesNewsPtr& news) {
                if (news->changed && news->rules)
                    log(LogLevel::info, "the routes file has changed: its rules are in force");
                set_routes(news);
                again();
            },
            [again](const caf::error&) { again(); });
}

void RouterState::tell_routes(const Caller& caller, const RoutesReply& reply) {
    (*reply)(book_.status(caller, core->routes));
}

void RouterState::put_routes(const std::string& json, const Caller& caller, const RoutesReply& reply) {
    auto task = std::make_shared<RoutesTask>();
    task->json = json;
    self->request(peers->preparers.back(), caf::infinite, routes_atom_v, RoutesTaskPtr(std::move(task)))
        .then(
            [this, caller, reply](const RoutesNewsPtr& news) {
                set_routes(news);
                if (!news->rules) return (*reply)(news->rules.error());
                tell_routes(caller, reply);
            },
            [reply](const caf::error& error) { (*reply)(from_caf(error)); });
}

// ---------------------------------------------------------------- what they choose

void RouterState::teach(Flight& flight) const {
    const RouteTable& table = *book_.table();
    if (!table.learns() || flight.modules.size() != 1 || flight.modules.front().weight != 1.0) return;
    flight.task->learner = table.classifier();
    flight.task->label = flight.modules.front().name;
}

void RouterState::take_choice(Flight& flight, const RouteChoice& choice) const {
    flight.route = choice.decision;
    flight.modules = choice.modules;
    flight.routed = true;
    flight.choice = choice.is_last ? std::nullopt : std::optional(choice.number);
    if (core->metrics) core->metrics->routed(choice.decision.rule, choice.patterns_over_limit);
}

bool RouterState::try_next_rule(RequestId id, Flight& flight, const Error& why) {
    if (!flight.task) flight.task = flight.spare;
    // Once the prompt was written for these modules and its text is gone, their failure is the request's.
    if (!flight.choice || !flight.task || !is_passed_over(why.code) || flight.passed_over.size() >= kPassedOver)
        return false;
    flight.passed_over.push_back(*flight.choice);
    flight.routed = false;
    flight.lease.reset();
    flight.prompt.reset();
    flight.spare.reset();
    flight.task->routes = book_.table();
    flight.task->passed_over = flight.passed_over;
    ask_preparer(id, flight, flight.task);
    return true;
}

void RouterState::try_route(const TrialPtr& trial) {
    if (trials_ >= kTrials) return (*trial->reply)(make_error(Errc::overloaded, "too many routes are being tried"));
    ++trials_;
    Flight probe;
    probe.submission = std::make_shared<Submission>();
    probe.submission->request = trial->task->request;
    probe.submission->request.prompt = {};
    const auto decided = decide(probe);
    if (!decided) return answer_trial(trial, decided.error());
    trial->decision = probe.route;
    trial->modules = probe.modules;
    if (*decided) return check_trial(trial, std::nullopt);
    trial->task->routes = book_.table();
    ask_trial(trial);
}

void RouterState::ask_trial(const TrialPtr& trial) {
    self->request(peers->preparers.back(), caf::infinite, prepare_atom_v, PrepareTaskPtr(trial->task))
        .then(
            [this, trial](const PreparedPtr& prompt) {
                if (!*prompt) return answer_trial(trial, prompt->error());
                const RouteChoice& choice = *(*prompt)->choice;
                trial->decision = choice.decision;
                trial->modules = choice.modules;
                check_trial(trial, choice.is_last ? std::nullopt : std::optional(choice.number));
            },
            [this, trial](const caf::error& error) { answer_trial(trial, from_caf(error)); });
}

/// As a request would find it: where the modules cannot be had, the next rule is asked.
void RouterState::check_trial(const TrialPtr& trial, std::optional<std::size_t> choice) {
    const auto refused = [this, trial, choice](const Error& error) {
        auto& passed_over = trial->task->passed_over;
        if (!choice || !is_passed_over(error.code) || passed_over.size() >= kPassedOver)
            return answer_trial(trial, error);
        passed_over.push_back(*choice);
        ask_trial(trial);
    };
    const auto good = [this, trial] {
        answer_trial(trial, RouteTrial{trial->decision, trial->modules, explanation_of(trial->decision)});
    };
    if (trial->modules.empty()) return good();
    if (auto valid = check_modules(trial->modules); !valid) return refused(valid.error());
    const LeaseAsk ask{RequestId{}, trial->modules, std::nullopt, trial->task->request.combine,
                       trial->task->request.caller};
    self->request(peers->cache_manager, caf::infinite, check_atom_v, ask)
        .then([good](caf::ok_atom) { good(); }, [refused](const caf::error& error) { refused(from_caf(error)); });
}

void RouterState::answer_trial(const TrialPtr& trial, Result<RouteTrial> answer) {
    --trials_;
    (*trial->reply)(std::move(answer));
}

// ---------------------------------------------------------------- for whom modules are fetched ahead

void RouterState::greet(Greeting greeting) {
    if (!greeting.leaves) greeting.modules = book_.table()->modules_of_user(greeting.user, greeting.caller.name);
    self->send(peers->cache_manager, greet_atom_v, std::move(greeting));
}

}  // namespace attune
