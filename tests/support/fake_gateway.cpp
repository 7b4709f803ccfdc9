#include "support/fake_gateway.hpp"

#include <stdexcept>

namespace attune {
namespace {

constexpr std::chrono::seconds kPatience{20};

template <class T>
T wait_front(std::mutex& mutex, std::condition_variable& changed, std::deque<T>& queue, const char* what) {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, kPatience, [&] { return !queue.empty(); })) throw std::runtime_error(what);
    T item = std::move(queue.front());
    queue.pop_front();
    return item;
}

}  // namespace

FakeGateway::Submitted FakeGateway::wait_submitted() {
    return wait_front(mutex_, changed_, submitted_, "no request was submitted");
}

RequestId FakeGateway::wait_cancelled() { return wait_front(mutex_, changed_, cancelled_, "nothing was cancelled"); }

std::size_t FakeGateway::unclaimed_submits() {
    const std::lock_guard lock(mutex_);
    return submitted_.size();
}

std::size_t FakeGateway::unclaimed_cancels() {
    const std::lock_guard lock(mutex_);
    return cancelled_.size();
}

bool FakeGateway::ready(std::string* why) const {
    if (why != nullptr) *why = not_ready;
    return not_ready.empty();
}

RequestId FakeGateway::next_id() {
    const std::lock_guard lock(mutex_);
    return RequestId{++last_id_};
}

void FakeGateway::submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
    const std::lock_guard lock(mutex_);
    submitted_.push_back({std::move(request), std::move(sink)});
    changed_.notify_all();
}

void FakeGateway::cancel(RequestId id) {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    changed_.notify_all();
}

void FakeGateway::tokenize(TokenizeRequest request, Reply<TokenizeResult> reply) { reply(on_tokenize(request)); }

void FakeGateway::detokenize(std::string model, std::vector<TokenId> ids, Caller, Reply<std::string> reply) {
    reply(on_detokenize(model, ids));
}

void FakeGateway::modules(Caller caller, Reply<std::vector<ModuleStatus>> reply) {
    list_caller = caller;
    reply(module_list);
}

void FakeGateway::load_module(LoadModuleRequest request, Reply<ModuleStatus> reply) { reply(on_load(request)); }

void FakeGateway::remove_module(std::string name, Caller caller, Reply<ModuleStatus> reply) {
    reply(on_remove(name, caller));
}

void FakeGateway::order_module(std::string name, ModuleOrder order, Caller caller, Reply<ModuleStatus> reply) {
    reply(on_order(name, order, caller));
}

std::string FakeGateway::wait_greeting() {
    return wait_front(mutex_, changed_, greetings_, "nobody was greeted or left");
}

void FakeGateway::routes(Caller caller, Reply<RoutesStatus> reply) { reply(on_routes(caller)); }

void FakeGateway::put_routes(std::string json, Caller caller, Reply<RoutesStatus> reply) {
    reply(on_put_routes(json, caller));
}

void FakeGateway::try_route(GenerationRequest request, Reply<RouteTrial> reply) { reply(on_try_route(request)); }

void FakeGateway::greet(std::string user, Caller) {
    const std::lock_guard lock(mutex_);
    greetings_.push_back("greet " + user);
    changed_.notify_all();
}

void FakeGateway::leave(std::string user, Caller) {
    const std::lock_guard lock(mutex_);
    greetings_.push_back("leave " + user);
    changed_.notify_all();
}

void FakeGateway::audit(bool run, Reply<AuditStatus> reply) {
    audits.push_back(run);
    reply(audit_status);
}

void FakeGateway::metrics(Reply<std::string> reply) {
    if (on_metrics)
        on_metrics(std::move(reply));
    else
        reply(std::string("attune_up 1\n"));
}

Admitted admitted(ColdWord cold, int prompt_tokens) {
    return Admitted{cold, RouteDecision{"explicit", {}}, prompt_tokens};
}

TokenEvent token(std::string text, int choice, TokenId id) {
    return TokenEvent{choice, id, std::move(text), false, std::nullopt};
}

TokenEvent scored_token(std::string text, float logprob, std::vector<ScoredToken> top, int choice) {
    TokenEvent event = token(text, choice);
    event.scores = TokenScores{ScoredToken{event.id, logprob, 1, std::move(text)}, std::move(top)};
    return event;
}

ChoiceFinished ended(FinishReason reason, int choice, std::string tail) {
    return ChoiceFinished{choice, reason, std::move(tail), {}};
}

AppliedModule applied(std::string name, double weight) {
    return AppliedModule{ModuleId{std::move(name), std::string(64, 'a')}, weight, false};
}

Finished finished(int prompt_tokens, int base_tokens, int module_tokens) {
    Finished event;
    event.usage = Usage{prompt_tokens, base_tokens + module_tokens, 2};
    if (base_tokens > 0 || module_tokens == 0) event.served.push_back({0, {}, base_tokens});
    if (module_tokens > 0) event.served.push_back({0, {applied("legal")}, module_tokens});
    event.queue_ms = 0.5;
    event.ttft_ms = 31;
    return event;
}

}  // namespace attune
