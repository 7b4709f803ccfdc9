#pragma once

#include "actors/cache_manager.hpp"
#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"
#include "actors/router_gateway.hpp"
#include "actors/supervisor.hpp"
#include "engine/module/hotswap.hpp"
#include "support/fake_engine.hpp"
#include "support/fake_tokenizer.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// What one request's client saw.
class SeenAnswer final : public TokenSink {
public:
    void push(OutputEvent event) override {
        if (ends > 0) ++after_end;
        if (auto* admitted_event = std::get_if<Admitted>(&event)) admitted = std::move(*admitted_event);
        if (auto* token = std::get_if<TokenEvent>(&event)) text += token->text;
        if (auto* switched_event = std::get_if<Switched>(&event)) switched = std::move(*switched_event);
        if (auto* revised_event = std::get_if<Revised>(&event)) {
            revised = std::move(*revised_event);
            first_text = std::exchange(text, {});
        }
        if (auto* finished_event = std::get_if<Finished>(&event)) {
            finished = std::move(*finished_event);
            ++ends;
        }
        if (auto* failed = std::get_if<Failed>(&event)) {
            error = std::move(failed->error);
            ++ends;
        }
    }
    bool ended() const { return ends == 1 && after_end == 0; }
    bool ok() const { return ended() && finished.has_value(); }
    /// Errc::ok when it did not fail.
    Errc code() const { return error ? error->code : Errc::ok; }

    std::optional<Admitted> admitted;
    std::optional<Switched> switched;
    std::optional<Finished> finished;
    std::optional<Error> error;
    std::optional<Revised> revised;
    std::string text;
    std::string first_text;  ///< what a revision made void
    int ends = 0;
    int after_end = 0;
};
using Seen = std::shared_ptr<SeenAnswer>;

/// One file on the pretended disk.
struct FakeSource {
    std::string generation;
    std::uint64_t bytes = 100;
    std::optional<Error> load_error = std::nullopt;
    std::optional<Error> inspect_error = std::nullopt;
    std::int64_t mtime = 1;
    std::string owner = {};
    std::optional<ColdPolicy> cold = std::nullopt;
    std::optional<RouteRule> rule = std::nullopt;
    bool pin = false;
    std::string chat_template = {};  ///< its own; what FakeTemplate writes before a chat
    std::vector<WeightedModule> members = {};
    Combine combine = Combine::sequence;
    std::vector<Requirement> needs = {};
    bool inspected = true;                 ///< false: the look at its headers missed template and tokenizer
    AddedTokenFacts added_tokens = {};     ///< of its own tokenizer, from id 320 on
    SwapFacts swap = {"LORA", {}, {"q"}};  ///< for modules.swap = strict
};

/// Writes its name and nothing else, so that a prompt's length tells whose template wrote it.
class FakeTemplate final : public ChatTemplate {
public:
    explicit FakeTemplate(std::string name) : name_(std::move(name)) {}
    Result<RenderedChat> render(const ChatPrompt&) const override { return RenderedChat{name_, {}}; }

private:
    std::string name_;
};

class TestConfig : public HouseConfig {
public:
    TestConfig() { set("scheduler.policy", caf::atom("testing")); }
};

/// The whole house on the test's own thread: a pretended clock, disk and engine; nothing runs but in run().
class HouseFixture {
public:
    HouseFixture();
    ~HouseFixture();

    /// Spawns everybody. `settings` and `disk` are set before.
    void start();

    /// Handles messages until none is left but those of held actors.
    void run();
    /// One message of the executor.
    bool step();
    void hold_loads(bool held) { hold_loads_ = held; }
    void hold_steps(bool held) { hold_steps_ = held; }
    void hold_prompts(bool held) { hold_prompts_ = held; }
    void hold_tokenize(bool held) { hold_tokenize_ = held; }
    /// Both clocks, ours and CAF's; then run().
    void pass(std::chrono::milliseconds time);

    GenerationRequest request(const std::string& model, int max_tokens = 3);
    Seen ask(GenerationRequest request);
    Seen ask(const std::string& model, int max_tokens = 3) { return ask(request(model, max_tokens)); }
    RequestId last_id() const { return last_id_; }

    struct Load {
        std::optional<Result<ModuleStatus>> answer;
        bool ok() const { return answer && *answer; }
        Errc code() const { return answer && !*answer ? answer->error().code : Errc::ok; }
    };
    std::shared_ptr<Load> load(const std::string& name, const std::string& path, bool inplace = false,
                               std::optional<std::string> expected = std::nullopt);
    std::shared_ptr<Load> order(const std::string& name, ModuleOrder order);
    std::shared_ptr<Load> remove(const std::string& name);
    std::vector<ModuleStatus> modules(Caller caller = {});
    std::optional<ModuleStatus> module(const std::string& name);
    Tier tier(const std::string& name);
    std::string metrics();
    AuditStatus audit(bool run);

    CacheManagerState& cache();

    std::map<std::string, FakeSource> disk;  ///< by path; those below "root/" are found by the scan
    Settings settings;
    RouteSource routes;
    FakeEngine* engine = nullptr;
    std::uint64_t device_bytes = 1000;
    int loads = 0;  ///< how often a loader read weights
    std::map<std::string, int> loads_of;
    std::shared_ptr<std::uint64_t> live_bytes = std::make_shared<std::uint64_t>(0);
    std::uint64_t peak_bytes = 0;
    TimePoint now{std::chrono::hours(1)};
    CorePtr core;
    PeersPtr peers;
    std::unique_ptr<RouterGateway> gateway;

    TestConfig config;
    std::unique_ptr<caf::actor_system> system;
    SupervisorActor supervisor_actor;
    caf::scheduler::test_coordinator& scheduler();
    /// After a restart.
    void refresh_peers();

private:
    ModuleFiles fake_files();
    FoundModule found(const std::string& name, const std::string& path) const;
    bool is_held(const caf::resumable& job) const;

    bool hold_loads_ = false;
    bool hold_steps_ = false;
    bool hold_prompts_ = false;
    bool hold_tokenize_ = false;
    RequestId last_id_{};
};

}  // namespace attune
