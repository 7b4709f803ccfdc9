#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <atomic>
#include <memory>

namespace attune {

/// The Gateway net sees: turns calls into messages. Any thread; after close() everything answers `unavailable`.
class RouterGateway final : public Gateway {
public:
    RouterGateway(CorePtr core, SupervisorActor supervisor, PeersPtr peers);

    const ServerInfo& info() const override { return info_; }
    bool ready(std::string* why) const override { return health_->ready(why); }
    RequestId next_id() override { return RequestId{++last_id_}; }

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

    /// Lets go of all actors; callers still get their answers.
    void close() { doors_.store(nullptr); }

private:
    static constexpr int kTokenizing = 256;  ///< /tokenize and /detokenize requests at once
    struct Doors {
        SupervisorActor supervisor;
        PeersPtr peers;
    };
    std::shared_ptr<const Doors> doors() const { return doors_.load(); }
    void send_tokenize(const TokenizeTaskPtr& task);
    /// Null when too many are under way; the reply has been told then.
    template <class T>
    OnceReplyPtr<T> counted(Reply<T> reply);

    ServerInfo info_;
    std::shared_ptr<Health> health_;
    std::atomic<std::shared_ptr<const Doors>> doors_;
    std::atomic<std::uint64_t> last_id_{0};
    std::shared_ptr<std::atomic<int>> tokenizing_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace attune
