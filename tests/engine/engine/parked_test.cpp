// A request that loses its blocks loses its slots, too, where the house says so: whatever lies in them meanwhile, and
// wherever its modules come back, its answer has the same bits.

#include "prefix_house.hpp"
#include "support/engine_house.hpp"

#include <functional>
#include <map>

using namespace attune;

namespace {

/// Each request has a module of its own, which leaves when the request is parked and comes back in another slot.
template <class House>
struct Parking {
    using Install = std::function<JobModule(int request)>;

    Parking(House& whose, Install how) : house(whose), install(std::move(how)) {}

    std::vector<JobModule> modules_of(int request) {
        const JobModule module = install(request);
        slots[RequestId{static_cast<std::uint64_t>(request)}] = module.slot;
        return {module};
    }
    bool run() {
        for (int i = 0; i < 5000 && house.engine->has_work(); ++i) {
            const StepReport report = house.step();
            for (const RequestId id : report.parked) {
                ++parked;
                house.engine->remove(slots.at(id));
                slots.erase(id);
                if (when_parked) when_parked();
            }
            for (const RequestId id : report.wanted) {
                ++wanted;
                auto modules = modules_of(static_cast<int>(value_of(id)));
                CHECK(house.engine->resume(id, std::move(modules)));
            }
        }
        return !house.engine->has_work();
    }

    House& house;
    Install install;
    std::function<void()> when_parked = nullptr;
    std::map<RequestId, SlotId> slots;
    int parked = 0;
    int wanted = 0;
};

}  // namespace

TEST_CASE("a preempted request of any kind of module comes back with the same bits", "[engine][golden][preempt]") {
    for (const char* const kind : {"lora_r4", "dora_r4", "ia3", "lora_embed", "alora", "prompt6", "prefix5"}) {
        INFO(kind);
        // A prefix lies in the KV cache like what is being made room for, so its module stays.
        const bool leaves = std::string(kind) != "prefix5";
        const auto answer = [&](bool tight) {
            GoldenHouse house(kModel, {.blocks = tight ? 7 : 0, .park_preempted = tight});
            const ModulePtr module = load(house, kind, kind);
            const ModulePtr filler = load(house, "filler", "lora_r4_b");
            Parking<GoldenHouse> parking(house, [&](int) { return house.install(module); });
            // The base's request is the older one: it takes the blocks of the other, which then finds its slot taken.
            const auto base = house.add(long_prompt(kModel, 20, 1), GoldenHouse::greedy(44));
            const auto sink = house.add(long_prompt(kModel, 20, 2), GoldenHouse::greedy(44), parking.modules_of(2));
            parking.when_parked = [&] { house.install(filler); };
            CHECK(parking.run());
            CHECK((house.preempted > 0) == tight);
            CHECK((parking.parked > 0) == (tight && leaves));
            CHECK(parking.wanted == parking.parked);
            REQUIRE(base->finished());
            REQUIRE(sink->finished());
            CHECK(sink->finished()->served.size() == 1);
            return bits_of(*sink);
        };
        CHECK(answer(true) == answer(false));
    }
}

TEST_CASE("a request of several choices is parked when the last of them has lost its blocks", "[engine][preempt]") {
    const auto ids = [](bool tight) {
        EngineHouse house({.blocks = tight ? 8 : 256, .park_preempted = tight});
        house.knobs->peak = 1;
        int made = 0;
        Parking<EngineHouse> parking(house, [&](int request) {
            return house.module("m" + std::to_string(request) + "-" + std::to_string(++made), request);
        });
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        for (int request = 1; request <= 3; ++request) {
            SamplingParams params = EngineHouse::greedy(30);
            params.temperature = 1;
            params.n = 3;
            auto job = house.job(request, std::string(static_cast<std::size_t>(10 + request), 'a'), params);
            job->modules = parking.modules_of(request);
            sinks.push_back(house.add(std::move(job)));
        }
        CHECK(parking.run());
        CHECK((parking.parked > 0) == tight);
        std::vector<std::vector<TokenId>> all;
        for (const auto& sink : sinks)
            for (int choice = 0; choice < 3; ++choice) all.push_back(sink->ids(choice));
        CHECK(house.all_free());
        return all;
    };
    CHECK(ids(true) == ids(false));
}

TEST_CASE("a parked request that was asked for is no work until it is resumed, and can be cancelled",
          "[engine][preempt]") {
    EngineHouse house({.blocks = 4, .park_preempted = true});
    auto first = house.job(1, std::string(30, 'a'), EngineHouse::greedy(25));
    auto second = house.job(2, std::string(14, 'a'), EngineHouse::greedy(40));
    first->modules = {house.module("one")};
    second->modules = {house.module("two")};
    const auto one = house.add(std::move(first));
    const auto two = house.add(std::move(second));
    std::vector<RequestId> wanted;
    for (int i = 0; i < 200 && house.engine->has_work(); ++i) {
        const StepReport report = house.step();
        wanted.insert(wanted.end(), report.wanted.begin(), report.wanted.end());
    }
    CHECK_FALSE(house.engine->has_work());
    CHECK(one->finished());
    CHECK_FALSE(two->ended_once());
    REQUIRE(wanted == std::vector<RequestId>{RequestId{2}});  // once
    CHECK_FALSE(house.engine->switch_modules(RequestId{2}, {house.module("three")}));
    SECTION("cancelled") {
        house.engine->cancel(RequestId{2});
        CHECK(two->finish()->reason == FinishReason::cancelled);
    }
    SECTION("resumed") {
        CHECK(house.engine->resume(RequestId{2}, {house.module("other")}));
        CHECK_FALSE(house.engine->resume(RequestId{2}, {house.module("again")}));
    }
    REQUIRE(house.run());
    CHECK(two->ended_once());
    CHECK(house.ended.size() == 2);
    CHECK(house.all_free());
}
