#include "actors/house_fixture.hpp"

#include "actors/module_template.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

template <class Actor>
const void* address_of(const Actor& actor) {
    return dynamic_cast<const caf::resumable*>(caf::actor_cast<caf::abstract_actor*>(actor));
}

}  // namespace

HouseFixture::HouseFixture() {
    settings.model.id = "base";
    settings.modules.host_bytes = 1000;
    settings.cold.timeout_ms = 30000;
    settings.audit.interval_s = 0;
}

HouseFixture::~HouseFixture() {
    if (!system) return;
    gateway.reset();
    peers = nullptr;
    caf::anon_send_exit(supervisor_actor, caf::exit_reason::user_shutdown);
    supervisor_actor = nullptr;
    scheduler().run();
    core->inbox.reset();
    system.reset();
}

caf::scheduler::test_coordinator& HouseFixture::scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
}

void HouseFixture::start() {
    core = std::make_shared<HouseCore>();
    settings.modules.device_bytes = device_bytes;
    core->settings = settings;
    auto made = std::make_shared<FakeEngine>(device_bytes);
    engine = made.get();
    core->engine = made;
    core->audit = made->audit();
    core->slot_bytes = [](const Module& module) { return module.host_bytes; };
    core->info.base_id = "base";
    core->info.vocab_size = 320;
    core->info.max_model_len = 4096;
    core->prepare.tokenizer = std::make_shared<FakeTokenizer>();
    core->prepare.vocab_size = 320;
    core->prepare.max_model_len = 4096;
    core->files = fake_files();
    core->routes = routes;
    core->now = [this] { return now; };
    core->metrics = std::make_shared<Metrics>(core->info, settings, made->stats());
    core->detached = false;

    system = std::make_unique<caf::actor_system>(config);
    supervisor_actor = system->spawn(supervisor, core);
    run();
    refresh_peers();
    gateway = std::make_unique<RouterGateway>(core, supervisor_actor, peers);
    run();
}

void HouseFixture::refresh_peers() {
    caf::scoped_actor self{*system, true};
    auto reply = self->request(supervisor_actor, caf::infinite, peers_atom_v);
    run();
    reply.receive([this](const PeersPtr& all) { peers = all; }, [](const caf::error&) {});
}

bool HouseFixture::is_held(const caf::resumable& job) const {
    if (!peers) return false;
    const auto is = [&](const auto& actor) { return address_of(actor) == &job; };
    if (hold_steps_ && is(peers->executor)) return true;
    if (hold_loads_ && std::any_of(peers->loaders.begin(), peers->loaders.end(), is)) return true;
    if (hold_tokenize_ && is(peers->preparers.back())) return true;
    return hold_prompts_ && std::any_of(peers->preparers.begin(), peers->preparers.end(), is);
}

void HouseFixture::run() {
    scheduler().run_jobs_filtered([this](const caf::resumable* job) { return !is_held(*job); });
}

bool HouseFixture::step() {
    if (!scheduler().prioritize(peers->executor)) return false;
    scheduler().run_once();
    const bool steps_held = std::exchange(hold_steps_, true);
    run();
    hold_steps_ = steps_held;
    return true;
}

void HouseFixture::pass(std::chrono::milliseconds time) {
    now += time;
    scheduler().advance_time(time);
    run();
}

FoundModule HouseFixture::found(const std::string& name, const std::string& path) const {
    const FakeSource& source = disk.at(path);
    FoundModule module;
    module.name = name;
    module.path = path;
    if (source.inspect_error) {
        module.header = *source.inspect_error;
    } else {
        ModuleHeader header;
        header.source = ModuleSource{path, source.bytes, source.mtime, 1};
        header.kind = "lora";
        header.parsed_bytes = source.bytes;
        header.own_template = source.inspected && !source.chat_template.empty();
        header.own_tokenizer = source.inspected && !source.added_tokens.empty();
        header.members = source.members;
        header.combine = source.combine;
        header.needs = source.needs;
        module.header = header;
    }
    module.manifest = ServingManifest{source.cold, source.pin, source.owner, source.rule};
    return module;
}

ModuleFiles HouseFixture::fake_files() {
    ModuleFiles files;
    files.scan = [this] {
        ScanResult result;
        for (const auto& [path, source] : disk)
            if (path.starts_with("root/")) result.modules.push_back(found(path.substr(5), path));
        return result;
    };
    files.resolve = [this](const std::string& name, const std::string& path) -> Result<FoundModule> {
        if (!disk.contains(path)) return make_error(Errc::not_found, "no module was found at that path", "lora_path");
        return found(name, path);
    };
    files.load = [this](const std::string& name, const std::filesystem::path& path) -> Result<ModulePtr> {
        ++loads;
        ++loads_of[path.string()];
        const FakeSource& source = disk.at(path.string());
        if (source.load_error) return *source.load_error;
        auto* module = new Module;
        module->id = ModuleId{name, source.generation};
        module->kind = "lora";
        module->host_bytes = source.bytes;
        if (settings.modules.swap == "strict") module->swap = std::make_shared<const SwapFacts>(source.swap);
        ModuleText text;
        if (!source.chat_template.empty()) {
            text.source.usual = source.chat_template;
            text.chat_template = std::make_shared<FakeTemplate>(source.chat_template);
        }
        if (!source.added_tokens.empty()) {
            text.added = source.added_tokens;
            text.tokenizer = *tokenizer_maker(core->prepare.tokenizer)(source.added_tokens);
            text.vocab_size = 320 + static_cast<int>(source.added_tokens.size());
        }
        if (text.chat_template || text.tokenizer) module->text = std::make_shared<ModuleText>(std::move(text));
        *live_bytes += source.bytes;
        peak_bytes = std::max(peak_bytes, *live_bytes);
        return ModulePtr(module, [live = live_bytes](const Module* gone) {
            *live -= gone->host_bytes;
            delete gone;
        });
    };
    return files;
}

GenerationRequest HouseFixture::request(const std::string& model, int max_tokens) {
    GenerationRequest request;
    request.id = gateway->next_id();
    request.model = model;
    request.prompt = TokenPrompt{{1, 2, 3}};
    request.sampling.max_tokens = max_tokens;
    request.received = now;
    return request;
}

Seen HouseFixture::ask(GenerationRequest request) {
    last_id_ = request.id;
    auto seen = std::make_shared<SeenAnswer>();
    gateway->submit(std::move(request), seen);
    run();
    return seen;
}

std::shared_ptr<HouseFixture::Load> HouseFixture::load(const std::string& name, const std::string& path, bool inplace,
                                                       std::optional<std::string> expected) {
    auto load = std::make_shared<Load>();
    gateway->load_module({name, path, inplace, std::move(expected), {}},
                         [load](Result<ModuleStatus> result) { load->answer = std::move(result); });
    return load;
}

std::shared_ptr<HouseFixture::Load> HouseFixture::order(const std::string& name, ModuleOrder order) {
    auto load = std::make_shared<Load>();
    gateway->order_module(name, order, {}, [load](Result<ModuleStatus> result) { load->answer = std::move(result); });
    run();
    return load;
}

std::shared_ptr<HouseFixture::Load> HouseFixture::remove(const std::string& name) {
    auto load = std::make_shared<Load>();
    gateway->remove_module(name, {}, [load](Result<ModuleStatus> result) { load->answer = std::move(result); });
    run();
    return load;
}

std::vector<ModuleStatus> HouseFixture::modules(Caller caller) {
    std::vector<ModuleStatus> list;
    gateway->modules(std::move(caller), [&](Result<std::vector<ModuleStatus>> all) {
        if (all) list = *all;
    });
    run();
    return list;
}

std::optional<ModuleStatus> HouseFixture::module(const std::string& name) {
    for (ModuleStatus& status : modules())
        if (status.name == name) return status;
    return std::nullopt;
}

Tier HouseFixture::tier(const std::string& name) { return module(name).value().tier; }

std::string HouseFixture::metrics() {
    std::string text;
    gateway->metrics([&](Result<std::string> all) {
        if (all) text = *all;
    });
    run();
    return text;
}

AuditStatus HouseFixture::audit(bool run_pass) {
    AuditStatus status;
    gateway->audit(run_pass, [&](Result<AuditStatus> now_status) {
        if (now_status) status = *now_status;
    });
    run();
    return status;
}

CacheManagerState& HouseFixture::cache() {
    auto* actor = caf::actor_cast<caf::abstract_actor*>(peers->cache_manager);
    using Stateful = CacheManagerActor::stateful_base<CacheManagerState>;
    return dynamic_cast<Stateful&>(*actor).state;
}

}  // namespace attune
