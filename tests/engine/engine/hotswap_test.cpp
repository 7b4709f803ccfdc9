// The reference's swap sequences through the engine: after every step, also a refused one, the named case holds.

#include "engine/module/hotswap.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

#include <optional>

using namespace attune;

namespace {

/// One name whose module is replaced, as load_inplace does it: a new slot, then the old one goes.
class Swapped {
public:
    explicit Swapped(const std::string& model) : house(model) {
        limits_.swap_facts = true;
        limits_.base_values = house.engine->base_values();
    }

    /// False: strict refused it.
    bool swap_in(const std::string& adapter, bool strict) {
        const auto next =
            load_module(adapter, golden::adapter_folder(house.model, adapter), house.engine->shape(), limits_);
        if (!next) throw std::runtime_error(next.error().message);
        if (strict && place_ && !check_hotswap(*place_, *(*next)->swap)) return false;
        const JobModule fresh = house.install(*next);
        if (module_) house.engine->remove(slot_->slot);
        module_ = *next;
        if (!place_) place_ = module_->swap;
        slot_ = fresh;
        return true;
    }

    /// Prompts and answers are the case's.
    bool holds(const std::string& name) {
        const golden::Case expected = golden::read_case(house.model, name);
        for (std::size_t i = 1; i < 3; ++i) {
            const golden::Prompt& prompt = expected.prompts[i];
            const auto sink =
                house.add(prompt.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size), {*slot_});
            if (!house.run()) return false;
            if (!(prompt_difference_from(prompt, *sink) <= golden::kTolerance)) return false;
            if (!(difference_from(prompt, *sink) <= golden::kTolerance)) return false;
        }
        return true;
    }

    GoldenHouse house;

private:
    ModuleLimits limits_;
    ModulePtr module_;
    std::shared_ptr<const SwapFacts> place_;  // the first module's: what a swap finds a place for
    std::optional<JobModule> slot_;
};

}  // namespace

TEST_CASE("the reference's swaps hold in strict mode as written, and in both as the modes' table says",
          "[engine][golden][hotswap]") {
    const auto modes = golden::read_json(golden::root().parent_path() / "golden_states" / "hotswap_modes.json");
    const auto sequences = golden::read_json(golden::root() / "hotswap.json");
    REQUIRE(modes.size() == sequences.size());
    int steps = 0;
    for (std::size_t number = 0; number < sequences.size(); ++number) {
        const auto& sequence = sequences[number];
        for (const bool strict : {true, false}) {
            Swapped name(sequence.at("model"));
            for (std::size_t i = 0; i < sequence.at("steps").size(); ++i) {
                const auto& step = sequence.at("steps")[i];
                const std::string adapter = step.contains("load") ? step.at("load") : step.at("swap_in");
                INFO(sequence.at("model") << " " << sequence.at("sequence") << " " << adapter << " strict " << strict);
                const auto& expected = modes[number].at("steps")[i].at(strict ? "strict" : "relaxed");
                if (strict) REQUIRE(expected.at("expect_case") == step.at("expect_case"));
                CHECK(name.swap_in(adapter, strict) == expected.at("accepted").get<bool>());
                if (i == 0 && !sequence.at("pad_to_rank").is_null())
                    REQUIRE(name.house.engine->prepare_slots(sequence.at("pad_to_rank").get<int>()));
                CHECK(name.holds(expected.at("expect_case")));
                ++steps;
            }
        }
    }
    CHECK(steps == 160);
}
