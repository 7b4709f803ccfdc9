#include "actors/router_gateway.hpp"

#include <utility>

namespace attune {

RouterGateway::RouterGateway(CorePtr core, SupervisorActor supervisor, PeersPtr peers)
    : info_(core->info),
      health_(core->health),
      doors_(std::make_shared<const Doors>(Doors{std::move(supervisor), std::move(peers)})) {}

// Every call below makes its OnceSink or OnceReply first: should the actors be gone, dropping it gives the answer.

void RouterGateway::submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
    auto submission = std::make_shared<Submission>();
    submission->request = std::move(request);
    submission->sink = std::make_shared<OnceSink>(std::move(sink));
    if (auto open = doors()) caf::anon_send(open->peers->router, submit_atom_v, submission);
}

void RouterGateway::cancel(RequestId id) {
    if (auto open = doors()) caf::anon_send(open->peers->router, cancel_atom_v, id);
}

template <class T>
OnceReplyPtr<T> RouterGateway::counted(Reply<T> reply) {
    auto guarded = once<T>([reply = std::move(reply), count = tokenizing_](Result<T> result) {
        --*count;
        reply(std::move(result));
    });
    if (++*tokenizing_ <= kTokenizing) return guarded;
    (*guarded)(make_error(Errc::overloaded, "too many requests are waiting"));
    return nullptr;
}

void RouterGateway::send_tokenize(const TokenizeTaskPtr& task) {
    auto open = doors();
    if (!open) return;
    const bool base = task->model.empty() || task->model == info_.base_id || task->model == "auto";
    if (base)
        caf::anon_send(open->peers->router, tokenize_atom_v, task);
    else
        caf::anon_send(open->peers->cache_manager, tokenize_atom_v, task);
}

void RouterGateway::tokenize(TokenizeRequest request, Reply<TokenizeResult> reply) {
    auto task = std::make_shared<TokenizeTask>();
    task->model = request.model;
    task->caller = request.caller;
    task->encode = std::move(request);
    task->encoded = counted(std::move(reply));
    if (task->encoded) send_tokenize(task);
}

void RouterGateway::detokenize(std::string model, std::vector<TokenId> ids, Caller caller, Reply<std::string> reply) {
    auto task = std::make_shared<TokenizeTask>();
    task->model = std::move(model);
    task->caller = std::move(caller);
    task->decode = std::move(ids);
    task->decoded = counted(std::move(reply));
    if (task->decoded) send_tokenize(task);
}

void RouterGateway::modules(Caller caller, Reply<std::vector<ModuleStatus>> reply) {
    auto answer = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->cache_manager, list_atom_v, std::move(caller), answer);
}

void RouterGateway::load_module(LoadModuleRequest request, Reply<ModuleStatus> reply) {
    auto order = std::make_shared<Order<LoadModuleRequest, ModuleStatus>>();
    order->request = std::move(request);
    order->reply = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->cache_manager, load_atom_v, order);
}

void RouterGateway::remove_module(std::string name, Caller caller, Reply<ModuleStatus> reply) {
    auto order = std::make_shared<NamedOrder>();
    order->name = std::move(name);
    order->caller = std::move(caller);
    order->reply = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->cache_manager, order_atom_v, order);
}

void RouterGateway::order_module(std::string name, ModuleOrder order, Caller caller, Reply<ModuleStatus> reply) {
    auto named = std::make_shared<NamedOrder>();
    named->name = std::move(name);
    named->order = order;
    named->caller = std::move(caller);
    named->reply = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->cache_manager, order_atom_v, named);
}

void RouterGateway::routes(Caller caller, Reply<RoutesStatus> reply) {
    auto answer = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->router, routes_atom_v, std::move(caller), answer);
}

void RouterGateway::put_routes(std::string json, Caller caller, Reply<RoutesStatus> reply) {
    auto answer = once(std::move(reply));
    if (auto open = doors())
        caf::anon_send(open->peers->router, routes_atom_v, std::move(json), std::move(caller), answer);
}

void RouterGateway::try_route(GenerationRequest request, Reply<RouteTrial> reply) {
    auto trial = std::make_shared<Trial>();
    trial->task = std::make_shared<PrepareTask>();
    trial->task->request = std::move(request);
    trial->reply = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->router, try_atom_v, trial);
}

void RouterGateway::greet(std::string user, Caller caller) {
    Greeting greeting{std::move(user), std::move(caller), /*leaves=*/false};
    if (auto open = doors()) caf::anon_send(open->peers->router, greet_atom_v, std::move(greeting));
}

void RouterGateway::leave(std::string user, Caller caller) {
    Greeting greeting{std::move(user), std::move(caller), /*leaves=*/true};
    if (auto open = doors()) caf::anon_send(open->peers->router, greet_atom_v, std::move(greeting));
}

void RouterGateway::audit(bool run, Reply<AuditStatus> reply) {
    auto answer = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->supervisor, audit_atom_v, run, answer);
}

void RouterGateway::metrics(Reply<std::string> reply) {
    auto answer = once(std::move(reply));
    if (auto open = doors()) caf::anon_send(open->peers->cache_manager, metrics_atom_v, answer);
}

}  // namespace attune
