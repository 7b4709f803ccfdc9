#include "actors/house.hpp"

#include "actors/memory_pressure.hpp"
#include "actors/router_gateway.hpp"
#include "actors/supervisor.hpp"
#include "engine/kv/block_size.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <utility>

namespace attune {
namespace {

CorePtr make_core(const Settings& settings, HouseParts& parts) {
    auto core = std::make_shared<HouseCore>();
    core->settings = settings;
    core->engine = std::move(parts.engine);
    core->audit = core->engine->audit();
    ModelShape shape = core->engine->shape();
    if (shape.checkpoint.empty()) shape.checkpoint = core->audit->checkpoint();
    const EngineStats stats = core->engine->stats();

    core->info.base_id = settings.model.id;
    core->info.max_model_len = shape.max_context;
    if (settings.model.max_context > 0)
        core->info.max_model_len = std::min(shape.max_context, settings.model.max_context);
    // Some module may know ids beyond the base's; the preparer knows whose they are.
    core->info.vocab_size = shape.vocab_size + kMostNewTokens;
    core->info.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    core->info.has_tokenizer = parts.tokenizer != nullptr;
    core->info.has_chat_template = parts.chat_template != nullptr;

    core->prepare.tokenizer = parts.tokenizer;
    core->prepare.chat_template = parts.chat_template;
    core->prepare.vocab_size = shape.vocab_size;
    core->prepare.max_model_len = core->info.max_model_len;
    core->prepare.kv_positions = stats.total_blocks * kBlockTokens;
    core->prepare.limits = settings.limits;

    core->files = module_files(settings, shape, core->info.base_id, parts.tokenizer, core->engine->base_values(),
                               [health = core->health] { return health->busy.load(); });
    core->slot_bytes = [engine = core->engine.get()](const Module& module) { return engine->slot_bytes(module); };
    core->routes = std::move(parts.routes);
    core->memory_pressure = memory_pressure;
    core->metrics = std::make_shared<Metrics>(core->info, settings, stats);
    return core;
}

class ActorHouse final : public House {
public:
    explicit ActorHouse(CorePtr core) : core_(std::move(core)), system_(std::make_unique<caf::actor_system>(config_)) {
        std::promise<void> seeded;
        core_->on_seeded = [&seeded] { seeded.set_value(); };
        caf::scoped_actor self{*system_, true};
        supervisor_ = system_->spawn(supervisor, core_);
        PeersPtr peers;
        self->request(supervisor_, caf::infinite, peers_atom_v)
            .receive([&](const PeersPtr& all) { peers = all; }, [](const caf::error&) {});
        router_ = peers->router;
        cache_manager_ = peers->cache_manager;
        gateway_ = std::make_unique<RouterGateway>(core_, supervisor_, peers);
        seeded.get_future().wait();
    }

    ~ActorHouse() override { stop(); }

    void set_routes(const RoutesNewsPtr& news) { caf::anon_send(router_, routes_atom_v, news); }

    Gateway& gateway() override { return *gateway_; }

    void reload() override {
        std::lock_guard lock(stopping_);
        if (!system_) return;
        // Read here, on the caller's thread: no actor waits for a disk.
        if (core_->routes.read) set_routes(read_rules(core_->routes, nullptr));
        caf::anon_send(cache_manager_, reload_atom_v);
    }

    bool drain(std::chrono::milliseconds limit) override {
        core_->health->draining = true;
        std::future<bool> empty;
        {
            // Not held while waiting: a second signal may stop everything meanwhile, which ends the wait too.
            std::lock_guard lock(stopping_);
            if (!system_) return true;
            empty = ask_empty();
        }
        return is_done(empty, limit);
    }

    void stop() override {
        core_->health->draining = true;
        std::lock_guard lock(stopping_);
        if (!system_) return;
        caf::anon_send(router_, quit_atom_v);
        // Running requests leave at the next step; a step that hangs does not keep us.
        auto empty = ask_empty();
        is_done(empty, std::chrono::seconds(10));
        gateway_->close();
        caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
        router_ = nullptr;
        cache_manager_ = nullptr;
        supervisor_ = nullptr;
        system_->await_all_actors_done();
        core_->inbox.reset();  // jobs still in it end here, and it holds the executor's handle
        system_.reset();
    }

private:
    std::future<bool> ask_empty() {
        auto empty = std::make_shared<std::promise<bool>>();
        auto answer = empty->get_future();
        caf::anon_send(router_, drain_atom_v,
                       once<bool>([empty](Result<bool> done) { empty->set_value(done && *done); }));
        return answer;
    }

    static bool is_done(std::future<bool>& empty, std::chrono::milliseconds limit) {
        return empty.wait_for(limit) == std::future_status::ready && empty.get();
    }

    CorePtr core_;
    HouseConfig config_;
    std::unique_ptr<caf::actor_system> system_;
    SupervisorActor supervisor_;
    RouterActor router_;
    CacheManagerActor cache_manager_;
    std::unique_ptr<RouterGateway> gateway_;
    std::mutex stopping_;  // drain, stop and reload may come from different threads
};

}  // namespace

Result<std::unique_ptr<House>> House::start(const Settings& settings, HouseParts parts) {
    if (!parts.engine) return make_error(Errc::internal, "a house needs an engine");
    if (settings.model.id.empty()) return make_error(Errc::internal, "a house needs its base's name");
    RoutesNewsPtr routes;
    if (parts.routes.read) {
        routes = read_rules(parts.routes, nullptr);
        if (!routes->rules) return routes->rules.error();
    }
    auto house = std::make_unique<ActorHouse>(make_core(settings, parts));
    if (routes) house->set_routes(routes);
    return std::unique_ptr<House>(std::move(house));
}

}  // namespace attune
