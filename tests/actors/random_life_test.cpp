#include "house_fixture.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <utility>

using namespace attune;

namespace {

/// Ten thousand orders in any sequence, on the test's own thread: the house's books are compared after each.
class RandomLife : public HouseFixture {
public:
    static constexpr int kModules = 9;

    explicit RandomLife(std::uint32_t seed) : random_(seed) {
        device_bytes = 450;
        settings.modules.host_bytes = 700;
        settings.modules.idle_unload = seed % 2 ? "pressure" : "always";
        settings.modules.eviction = seed % 3 ? "cost" : "lru";
        settings.trigger.idle_s = 20;
        settings.cold.timeout_ms = 5000;
        settings.scheduler.queue = 40;
        settings.modules.load_timeout_s = 8;
        settings.modules.trust_manifests = "roots";
        for (int i = 0; i < kModules; ++i) {
            FakeSource source;
            source.generation = i == 8 ? generations_.at("root/m7") : fresh_generation(path(i));
            source.bytes = 60 + 20 * static_cast<std::uint64_t>(i);  // m8 is m7's content under a second name
            if (i == 8) source.bytes = disk.at("root/m7").bytes;
            if (i == 5) source.owner = "owner-of-m5";
            if (i == 6) source.cold = ColdPolicy::fallback;
            generations_[path(i)] = source.generation;
            disk[path(i)] = source;
        }
        disk["root/both"] = FakeSource{"unused"};
        disk["root/both"].members = {{"m0", 1.0}, {"m1", 0.5}};
        disk["spare"] = FakeSource{fresh_generation("spare")};
        start();
    }

    void one_operation();
    void check_books();
    void let_all_end();

    std::string last;  ///< what was done, for the report of a failure

private:
    struct Asked {
        Seen seen;
        RequestId id{};
    };

    static std::string name(int i) { return "m" + std::to_string(i); }
    static std::string path(int i) { return "root/" + name(i); }
    int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
    bool chance(int percent) { return below(100) < percent; }
    std::string fresh_generation(const std::string& of) {
        std::string next = of + "-" + std::to_string(++made_);
        known_[next] = of;
        return next;
    }
    void ask_something();
    void change_disk();
    void order_something();
    void preempt_somebody();

    std::mt19937 random_;
    int made_ = 0;
    std::map<std::string, std::string> generations_;  ///< by path
    std::map<std::string, std::string> known_;        ///< every generation that ever lay on the disk, and where
    std::vector<Asked> asked_;
    std::vector<std::shared_ptr<Load>> orders_;
};

void RandomLife::ask_something() {
    static const std::vector<ColdPolicy> policies{ColdPolicy::wait, ColdPolicy::fallback, ColdPolicy::upgrade};
    GenerationRequest next = request("base", 1 + below(12));
    if (const int kind = below(20); kind < 14)
        next.model = name(below(kModules));
    else if (kind == 14)
        next.model = "both";
    else if (kind == 15)
        next.model = "nobody";
    else if (kind == 16)
        next.modules = {{name(below(4)), 1.0}, {name(4 + below(4)), -0.5}};
    else if (kind == 17)
        next.modules = {{name(below(4)), 0.0}};
    if (!next.modules.empty()) next.model = "base";
    if (chance(70)) next.cold = policies[static_cast<std::size_t>(below(3))];
    if (chance(10)) next.deadline_ms = 1 + below(3000);
    if (chance(20)) next.caller = Caller{chance(50) ? "owner-of-m5" : "somebody", false};
    const RequestId id = next.id;
    asked_.push_back({ask(std::move(next)), id});
}

void RandomLife::change_disk() {
    const int i = below(kModules);
    FakeSource& source = disk[path(i)];
    switch (below(4)) {
        case 0:  // another content under the same path
            source.generation = fresh_generation(path(i));
            ++source.mtime;
            break;
        case 1:
            source.load_error = chance(50) ? make_error(Errc::invalid_module, "lora_A is missing")
                                           : make_error(Errc::unavailable, "the disk did not answer");
            break;
        case 2:
            source.load_error.reset();
            break;
        default:
            for (auto& [unused, other] : disk) other.load_error.reset();
    }
}

void RandomLife::order_something() {
    static const std::vector<ModuleOrder> all{ModuleOrder::load, ModuleOrder::unload, ModuleOrder::pin,
                                              ModuleOrder::unpin, ModuleOrder::unpin};
    const std::string which = name(below(kModules));
    switch (below(6)) {
        case 0:
            orders_.push_back(load(which, "root/" + which, true));
            break;
        case 1:
            disk["spare"].generation = fresh_generation("spare");
            orders_.push_back(load("spare" + std::to_string(below(2)), "spare", chance(50)));
            break;
        case 2:
            orders_.push_back(remove("spare" + std::to_string(below(2))));
            break;
        default:
            orders_.push_back(order(which, all[static_cast<std::size_t>(below(static_cast<int>(all.size())))]));
    }
    run();
}

/// Steps are held from then on, so that some are in the engine to be chosen from.
void RandomLife::preempt_somebody() {
    hold_steps(true);
    for (int i = 0; i < 3; ++i) ask_something();
    for (int i = 0; i < 4; ++i) step();
    const auto ids = engine->computing();
    const int steps_out = below(4);
    for (const RequestId id : ids)
        if (chance(50)) engine->preempt(id, steps_out);
}

void RandomLife::one_operation() {
    const int kind = below(100);
    if (kind < 40) {
        last = "ask";
        ask_something();
    } else if (kind < 50 && !asked_.empty()) {
        last = "cancel";
        gateway->cancel(asked_[static_cast<std::size_t>(below(static_cast<int>(asked_.size())))].id);
        run();
    } else if (kind < 54) {
        last = "preempt";
        preempt_somebody();
    } else if (kind < 64) {
        last = "step";
        step();
    } else if (kind < 72) {
        last = "order";
        order_something();
    } else if (kind < 78) {
        last = "disk";
        change_disk();
    } else if (kind < 84) {
        last = "hold";
        hold_steps(chance(50));
        hold_loads(chance(40));
        hold_prompts(chance(20));
        run();
    } else if (kind < 94) {
        last = "time";
        pass(std::chrono::milliseconds(1 + below(2500)));
    } else if (kind < 96) {
        last = "install fails";
        engine->next_install = make_error(Errc::no_room, "the arena is in pieces");
    } else if (kind < 98) {
        last = "scan";
        caf::anon_send(peers->cache_manager, reload_atom_v);
        run();
    } else {
        last = "switch refused";
        engine->refuses_switch = chance(30);
    }
    if (asked_.size() > 200) {
        for (const Asked& one : asked_) REQUIRE(one.seen->after_end == 0);
        std::erase_if(asked_, [](const Asked& one) { return one.seen->ended(); });
    }
}

void RandomLife::check_books() {
    const CacheManagerState& state = cache();
    REQUIRE(engine->broken_rules.empty());
    std::uint64_t host = 0;
    std::uint64_t device = 0;
    std::map<const Copy*, int> leases;
    std::map<const Copy*, int> users;
    const auto count = [&](const LeasePtr& lease) {
        REQUIRE(lease->stage != Lease::Stage::over);
        for (const Lease::Part& part : lease->parts) {
            if (!part.copy) continue;
            ++leases[part.copy.get()];
            if (lease->stage == Lease::Stage::installing || lease->stage == Lease::Stage::ready)
                ++users[part.copy.get()];
        }
    };
    std::set<LeasePtr> all(state.line.begin(), state.line.end());
    for (const auto& [id, lease] : state.leases) all.insert(lease);
    for (const LeasePtr& lease : all) count(lease);
    for (const auto& [generation, copy] : state.copies) {
        REQUIRE(copy->module->id.generation == generation);
        host += copy->module->host_bytes;
        if (copy->place != Copy::Place::host) device += copy->slot_bytes;
        REQUIRE(copy->leases == leases[copy.get()]);
        REQUIRE(copy->users == users[copy.get()]);
        REQUIRE((!copy->aliases.empty() || !copy->idle()));  // nobody's memory is given back
        for (const NameEntry* alias : copy->aliases) REQUIRE(alias->copy == copy);
        if (copy->place == Copy::Place::resident) REQUIRE(engine->has_installed(generation));
    }
    for (const LoadPtr& load : state.loads) host += load->reserved;
    REQUIRE(state.host_used == host);
    REQUIRE(state.device_used == device);
    REQUIRE(host <= settings.modules.host_bytes);
    REQUIRE(device <= settings.modules.device_bytes);
    for (const auto& [one, entry] : state.names) {
        REQUIRE(entry->listed);
        if (entry->copy) {
            REQUIRE(state.copies.contains(entry->copy->module->id.generation));
            REQUIRE(std::count(entry->copy->aliases.begin(), entry->copy->aliases.end(), entry.get()) == 1);
        }
    }
}

void RandomLife::let_all_end() {
    for (auto& [unused, source] : disk) source.load_error.reset();
    engine->next_install.reset();
    hold_steps(false);
    hold_loads(false);
    hold_prompts(false);
    run();
    for (int i = 0; i < kModules; ++i) order(name(i), ModuleOrder::unpin);
    for (int i = 0; i < 20; ++i) pass(std::chrono::seconds(1));
    check_books();
    const CacheManagerState& state = cache();
    REQUIRE(state.leases.empty());
    REQUIRE(state.line.empty());
    REQUIRE(state.loads.empty());
    REQUIRE(engine->running() == 0);
    REQUIRE(engine->resumes > 0);
    for (const auto& [generation, copy] : state.copies) REQUIRE((copy->leases == 0 && copy->users == 0));
    REQUIRE(*live_bytes == state.host_used);
    for (const Asked& one : asked_) {
        REQUIRE(one.seen->ended());
        if (!one.seen->finished) continue;
        int tokens = 0;
        for (const ServedEntry& entry : one.seen->finished->served) {
            tokens += entry.tokens;
            for (const AppliedModule& module : entry.modules) REQUIRE(known_.contains(module.id.generation));
        }
        REQUIRE(tokens == one.seen->finished->usage.completion_tokens);
    }
    for (const auto& one : orders_) REQUIRE(one->answer.has_value());
    REQUIRE(audit(true).ok);
}

}  // namespace

TEST_CASE("ten thousand random orders of a module's life leave the books right", "[actors][cache]") {
    const auto seed = static_cast<std::uint32_t>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    RandomLife house(seed);
    for (int operation = 0; operation < 1000; ++operation) {
        house.one_operation();
        INFO("seed " << seed << ", operation " << operation << ": " << house.last);
        house.check_books();
    }
    house.let_all_end();
}
