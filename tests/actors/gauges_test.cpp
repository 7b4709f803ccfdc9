#include "house_fixture.hpp"

#include <catch2/catch.hpp>

#include <sstream>

using namespace attune;

namespace {

/// What a scrape says, by name and labels as written.
class Scrape {
public:
    explicit Scrape(const std::string& text) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            const auto end = line.rfind(' ');
            if (!line.starts_with('#') && end != std::string::npos) values_[line.substr(0, end)] = line.substr(end + 1);
        }
    }
    int number(const std::string& name, const std::string& more_labels = "") const {
        const auto found = values_.find(name + R"({engine="0",model_name="base")" + more_labels + "}");
        return found == values_.end() ? -1 : std::stoi(found->second);
    }
    /// Series of a name, without their values.
    std::set<std::string> series(const std::string& name) const {
        std::set<std::string> found;
        for (const auto& [key, value] : values_)
            if (key.starts_with(name + "{")) found.insert(key);
        return found;
    }

private:
    std::map<std::string, std::string> values_;
};

/// The names in the label of the gateway protocol's gauge, in a set.
std::set<std::string> names_in(const std::set<std::string>& series, const std::string& label) {
    std::set<std::string> names;
    if (series.size() != 1) return {"not one series"};
    const auto begin = series.begin()->find(label + "=\"") + label.size() + 2;
    std::istringstream list(series.begin()->substr(begin, series.begin()->find('"', begin) - begin));
    for (std::string name; std::getline(list, name, ',');) names.insert(name);
    return names;
}

class GaugesFixture : public HouseFixture {
public:
    GaugesFixture() {
        for (const char* const name : {"a", "b", "c", "bad"})
            disk[std::string("root/") + name] = FakeSource{std::string("gen-") + name};
        disk["root/bad"].load_error = make_error(Errc::invalid_module, "broken");
        settings.modules.host_bytes = 250;
        device_bytes = 200;
        settings.cold.policy = ColdPolicy::wait;
    }

    /// Every gauge against the admin route.
    void compare() {
        const auto list = modules();
        const Scrape scrape(metrics());
        std::map<Tier, int> tiers;
        std::set<std::string> loaded;
        int pinned = 0;
        for (const ModuleStatus& module : list) {
            ++tiers[module.tier];
            pinned += module.pinned ? 1 : 0;
            if (module.tier != Tier::host && module.tier != Tier::resident) continue;
            loaded.insert("vllm:lora_adapter_loaded{adapter_name=\"" + module.name + R"(",engine="0",level=")" +
                          (module.tier == Tier::resident ? "gpu" : "cpu") + R"(",model_name="base",pinned=")" +
                          (module.pinned ? "true" : "false") + "\"}");
        }
        const std::map<Tier, std::string> words{{Tier::cold, "cold"},
                                                {Tier::loading, "loading"},
                                                {Tier::host, "host"},
                                                {Tier::resident, "resident"},
                                                {Tier::failed, "failed"}};
        for (const auto& [tier, word] : words) {
            INFO(word);
            CHECK(scrape.number("attune_modules", ",tier=\"" + word + "\"") == tiers[tier]);
        }
        CHECK(scrape.number("attune_modules_pinned") == pinned);
        CHECK(scrape.number("vllm:num_gpu_loaded_lora_adapters") == tiers[Tier::resident]);
        CHECK(scrape.number("vllm:num_cpu_loaded_lora_adapters") == tiers[Tier::host]);
        CHECK(scrape.series("vllm:lora_adapter_loaded") == loaded);
    }
    std::set<std::string> running() {
        return names_in(Scrape(metrics()).series("vllm:lora_requests_info"), "running_lora_adapters");
    }
};

}  // namespace

TEST_CASE_METHOD(GaugesFixture, "F1: in every state of a module the gauges say what the admin route says",
                 "[actors][metrics][F1]") {
    using Names = std::set<std::string>;
    start();
    compare();
    CHECK(order("a", ModuleOrder::load)->ok());
    compare();
    CHECK(tier("a") == Tier::resident);
    CHECK(running().empty());

    hold_loads(true);
    const Seen waiting = ask("b");
    CHECK(tier("b") == Tier::loading);
    compare();
    CHECK(running().empty());
    hold_loads(false);
    hold_steps(true);
    run();
    for (int i = 0; i < 3; ++i) step();
    run();
    compare();
    CHECK(running() == Names{"b"});
    hold_steps(false);
    run();
    CHECK(waiting->ok());
    CHECK(running().empty());
    CHECK(tier("b") == Tier::resident);
    compare();

    // A third one pushes the least recently used out of both budgets.
    CHECK(order("b", ModuleOrder::pin)->ok());
    CHECK(ask("c")->ok());
    CHECK(tier("a") == Tier::cold);
    compare();
    CHECK(ask("bad")->code() == Errc::invalid_module);
    CHECK(tier("bad") == Tier::failed);
    compare();
    CHECK(order("b", ModuleOrder::unpin)->ok());
    CHECK(remove("b")->ok());
    compare();
    CHECK(order("c", ModuleOrder::unload)->ok());
    compare();
    CHECK(Scrape(metrics()).series("vllm:lora_adapter_loaded").empty());
}
