#include "engine/acting_modules.hpp"

#include <catch2/catch.hpp>

#include <map>

using namespace attune;

namespace {

/// Modules on slots 0, 1, ..., each under the name of its letter.
struct Slots {
    JobModule add(Module module, double weight = 1.0) {
        const SlotId slot{static_cast<std::int32_t>(modules.size())};
        module.id.name = std::string(1, static_cast<char>('a' + value_of(slot)));
        const ModuleId id = module.id;
        modules[slot] = std::move(module);
        return {slot, {id, weight, false}};
    }
    Result<SequenceModules> acting(const std::vector<JobModule>& list, Combine combine = Combine::sequence) const {
        const std::vector<TokenId> prompt{5, 7, 9, 1, 7, 9, 9};
        return acting_modules(prompt, list, combine, [&](SlotId slot) {
            const auto found = modules.find(slot);
            return Resident{found != modules.end() ? &found->second : nullptr, nullptr};
        });
    }
    std::string refusal(const std::vector<JobModule>& list, Combine combine = Combine::sequence) const {
        const auto result = acting(list, combine);
        if (result) return "accepted";
        CHECK(result.error().code == Errc::invalid_argument);
        return result.error().message;
    }
    std::map<SlotId, Module> modules;
};

Module invoked_by(std::vector<TokenId> tokens) {
    Module module;
    module.invocation = std::move(tokens);
    return module;
}

Module soft_prompt(int tokens) {
    Module module;
    module.prompt = SoftPrompt{tokens, {}};
    return module;
}

Module state(int layer, StateKind kind = StateKind::bottleneck, int width = 4) {
    StateLayer one;
    one.layer = layer;
    one.kind = kind;
    one.width = width;
    Module module;
    module.states.push_back(one);
    return module;
}

}  // namespace

TEST_CASE("a module acts from the last occurrence of its invocation in the prompt", "[engine][B4]") {
    Slots slots;
    const auto late = slots.add(invoked_by({7, 9}));
    const auto always = slots.add({});
    const auto never = slots.add(invoked_by({9, 7}));
    const auto too_long = slots.add(invoked_by({5, 7, 9, 1, 7, 9, 9, 9}));
    const auto whole = slots.add(invoked_by({5, 7, 9, 1, 7, 9, 9}));
    const auto acting = slots.acting({late, always, never, too_long, whole});
    REQUIRE(acting);
    REQUIRE(acting->list.size() == 3);
    CHECK(acting->list[0] == SequenceModule{{late.slot, 1.0F}, 4});
    CHECK(acting->list[1] == SequenceModule{{always.slot, 1.0F}, 0});
    CHECK(acting->list[2] == SequenceModule{{whole.slot, 1.0F}, 0});
}

TEST_CASE("behind virtual tokens an invocation is later by as many positions", "[engine][B4]") {
    Slots slots;
    const auto late = slots.add(invoked_by({7, 9}));
    const auto prompt = slots.add(soft_prompt(6));
    const auto acting = slots.acting({late, prompt});
    REQUIRE(acting);
    CHECK(acting->virtual_tokens.count == 6);
    CHECK(acting->list[0].from == 10);
    CHECK(acting->list[1].from == 0);
}

TEST_CASE("a module of weight 0 is left out, its virtual tokens and states too", "[engine]") {
    Slots slots;
    const auto acting = slots.acting({slots.add(soft_prompt(6), 0.0), slots.add(state(0), 0.0), slots.add(state(1))},
                                     Combine::interpolate);
    REQUIRE(acting);
    CHECK(acting->virtual_tokens.count == 0);
    CHECK(acting->list.size() == 1);
}

TEST_CASE("virtual tokens are on or off, and one module's only", "[engine]") {
    Slots slots;
    CHECK(slots.refusal({slots.add(soft_prompt(6), 0.5)}) ==
          "module \"a\" puts virtual tokens before the prompt, so its weight can only be 0 or 1");
    CHECK(slots.refusal({slots.add(soft_prompt(2)), slots.add({}), slots.add(soft_prompt(3))}) ==
          "modules \"b\" and \"d\" both put virtual tokens before the prompt; a request can have one of them");
}

TEST_CASE("a module that is not resident is our own fault", "[engine]") {
    const auto result = Slots().acting({{SlotId{3}, {ModuleId{"gone", ""}, 1.0, false}}});
    REQUIRE_FALSE(result);
    CHECK(result.error().code == Errc::internal);
}

TEST_CASE("states that are one state with other numbers can be interpolated", "[engine]") {
    Slots slots;
    const auto acting =
        slots.acting({slots.add(state(1), 0.3), slots.add({}, 5.0), slots.add(state(1), 0.7)}, Combine::interpolate);
    REQUIRE(acting);
    CHECK(acting->combine == Combine::interpolate);
    CHECK(slots.acting({slots.add({}, 5.0)}, Combine::interpolate));
}

TEST_CASE("states that differ, or weights that do not sum to 1, cannot be interpolated", "[engine]") {
    Slots slots;
    const auto refusal = [&](Module a, Module b, double weight = 0.5) {
        return slots.refusal({slots.add(std::move(a), 0.5), slots.add(std::move(b), weight)}, Combine::interpolate);
    };
    CHECK(refusal(state(1), state(2)).find("their layers differ") != std::string::npos);
    CHECK(refusal(state(1), state(1, StateKind::linear)).find("their kinds differ") != std::string::npos);
    CHECK(refusal(state(1), state(1, StateKind::bottleneck, 5)).find("their widths differ") != std::string::npos);
    Module tanh = state(1);
    tanh.states[0].activation = Activation::tanh;
    CHECK(refusal(state(1), tanh).find("their activations differ") != std::string::npos);
    Module loud = state(1);
    loud.states[0].scale = 0.2F;
    CHECK(refusal(state(1), loud).find("their scales differ") != std::string::npos);
    Module deeper = state(1);
    deeper.states.push_back(state(2).states[0]);
    CHECK(refusal(state(1), deeper).find("their layers differ") != std::string::npos);
    CHECK(refusal(state(1), state(1), 0.50001).find("must sum to 1") != std::string::npos);
    CHECK(refusal(state(1), state(1), 0.5000001) == "accepted");
}

TEST_CASE("how states combine does not matter where there is one", "[engine]") {
    Slots slots;
    const auto one = slots.acting({slots.add(state(1)), slots.add({})}, Combine::parallel);
    REQUIRE(one);
    CHECK(one->combine == Combine::sequence);
    CHECK(slots.acting({slots.add(state(1)), slots.add(state(2))}, Combine::parallel)->combine == Combine::parallel);
}
