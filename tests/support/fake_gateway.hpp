#pragma once

#include "attune/gateway.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// A house without actors or engine. Requests are kept for the test, which plays the executor: it pushes events into
/// their sinks. Orders are answered by the test's functions. The waits return as soon as the thing happens and throw
/// after a bound that no sound run comes near.
class FakeGateway final : public Gateway {
public:
    struct Submitted {
        GenerationRequest request;
        std::shared_ptr<TokenSink> sink;
    };

    ServerInfo server_info{"base-model", 2048, 1000, 1700000000, true, true};
    std::string not_ready;  ///< empty: ready
    std::vector<ModuleStatus> module_list;
    AuditStatus audit_status{true, "verified", "sha256:ab", "e1", "e1", 3, 0, {}};
    std::function<Result<TokenizeResult>(const TokenizeRequest&)> on_tokenize;
    std::function<Result<std::string>(const std::string&, const std::vector<TokenId>&)> on_detokenize;
    std::function<Result<ModuleStatus>(const LoadModuleRequest&)> on_load;
    std::function<Result<ModuleStatus>(const std::string&, const Caller&)> on_remove;
    std::function<Result<ModuleStatus>(const std::string&, ModuleOrder, const Caller&)> on_order;
    std::function<void(Reply<std::string>)> on_metrics;
    std::function<void()> on_info;  ///< called by whoever asks for the server's facts
    std::vector<bool> audits;       ///< the `run` of each
    std::optional<Caller> list_caller;
    std::function<Result<RoutesStatus>(const Caller&)> on_routes;
    std::function<Result<RoutesStatus>(const std::string&, const Caller&)> on_put_routes;
    std::function<Result<RouteTrial>(const GenerationRequest&)> on_try_route;

    /// "greet ann" or "leave ann", the next one.
    std::string wait_greeting();

    /// The next request that net handed over.
    Submitted wait_submitted();
    /// The next request that net cancelled.
    RequestId wait_cancelled();
    /// What was submitted or cancelled and not waited for.
    std::size_t unclaimed_submits();
    std::size_t unclaimed_cancels();

    const ServerInfo& info() const override {
        if (on_info) on_info();
        return server_info;
    }
    bool ready(std::string* why) const override;
    RequestId next_id() override;
    void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) override;
    void cancel(RequestId id) override;
    void tokenize(TokenizeRequest request, Reply<TokenizeResult> reply) override;
    void detokenize(std::string model, std::vector<TokenId> ids, Caller caller, Reply<std::string> reply) override;
    void modules(Caller caller, Reply<std::vector<ModuleStatus>> reply) override;
    void load_module(LoadModuleRequest request, Reply<ModuleStatus> reply) override;
    void remove_module(std::string name, Caller caller, Reply<ModuleStatus> reply) override;
    void order_module(std::string name, ModuleOrder order, Caller caller, Reply<ModuleStatus> reply) override;
    void routes(Caller caller, Reply<RoutesStatus> reply) override;
    void put_routes(std::string json, Caller caller, Reply<RoutesStatus> reply) override;
    void try_route(GenerationRequest request, Reply<RouteTrial> reply) override;
    void greet(std::string user, Caller caller) override;
    void leave(std::string user, Caller caller) override;
    void audit(bool run, Reply<AuditStatus> reply) override;
    void metrics(Reply<std::string> reply) override;

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Submitted> submitted_;
    std::deque<RequestId> cancelled_;
    std::deque<std::string> greetings_;
    std::uint64_t last_id_ = 0;
};

// Events as an executor would push them.
Admitted admitted(ColdWord cold = ColdWord::warm, int prompt_tokens = 5);
TokenEvent token(std::string text, int choice = 0, TokenId id = 7);
TokenEvent scored_token(std::string text, float logprob, std::vector<ScoredToken> top, int choice = 0);
ChoiceFinished ended(FinishReason reason = FinishReason::stop, int choice = 0, std::string tail = {});
/// `base_tokens` by the base and then `module_tokens` by module "legal".
Finished finished(int prompt_tokens, int base_tokens, int module_tokens = 0);
AppliedModule applied(std::string name, double weight = 1.0);

}  // namespace attune
