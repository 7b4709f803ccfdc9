#include "engine/cache_weights.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using namespace attune;

namespace {

/// Modules by slot; their names never reach a key.
struct Slots {
    SlotId put(const std::string& generation, std::vector<TokenId> invocation = {}, int prompt_tokens = 0) {
        Module module;
        module.id = {"name " + std::to_string(modules.size()), generation};
        module.invocation = std::move(invocation);
        if (prompt_tokens > 0) module.prompt = SoftPrompt{prompt_tokens, {}};
        const SlotId slot{static_cast<std::int32_t>(modules.size())};
        modules[slot] = std::move(module);
        return slot;
    }
    static JobModule use(SlotId slot, double weight = 1.0, std::vector<std::string> owners = {}) {
        return {slot, {{"asked for", "claimed"}, weight, false}, std::move(owners)};
    }

    std::vector<CacheWeights> of(const std::vector<JobModule>& list, Combine combine = Combine::sequence,
                                 const std::string& salt = "") const {
        const FindResident find = [this](SlotId slot) { return Resident{&modules.at(slot), nullptr}; };
        auto acting = acting_modules(prompt, list, combine, find);
        REQUIRE(acting);
        return cache_weights(*acting, list, find, salt);
    }

    std::map<SlotId, Module> modules;
    std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8};
};

StateLayer state_layer() {
    StateLayer layer;
    layer.kind = StateKind::vector;
    return layer;
}

}  // namespace

TEST_CASE("cached blocks are kept apart by content, weight, order and salt, not by name or slot", "[engine]") {
    Slots slots;
    const SlotId a = slots.put("aaaa");
    const SlotId a_elsewhere = slots.put("aaaa");
    const SlotId b = slots.put("bbbb");
    const auto use = [](SlotId slot, double weight = 1.0) { return Slots::use(slot, weight); };
    const auto base = slots.of({});
    const auto with_a = slots.of({use(a)});
    REQUIRE(base.size() == 1);
    REQUIRE(with_a.size() == 1);
    CHECK(with_a[0].from == 0);

    CHECK(slots.of({use(a_elsewhere)}) == with_a);
    CHECK(slots.of({use(a, 0)}) == base);
    CHECK(slots.of({use(b, 0), use(a)}) == with_a);
    CHECK(slots.of({use(a)}, Combine::parallel) == with_a);  // nothing to combine
    CHECK(slots.of({}, Combine::parallel) == base);

    std::set<std::string> different;
    const std::vector<std::vector<CacheWeights>> all{
        base,
        with_a,
        slots.of({use(b)}),
        slots.of({use(a, 0.5)}),
        slots.of({use(a, -1)}),
        slots.of({use(a), use(b)}),
        slots.of({use(b), use(a)}),
        slots.of({}, Combine::sequence, "salt"),
        slots.of({use(a)}, Combine::sequence, "salt"),
        slots.of({Slots::use(a, 1, {"ann"})}),
        slots.of({Slots::use(a, 1, {"bob"})}),
        slots.of({Slots::use(a, 1, {"ann", "bob"})}),
        slots.of({Slots::use(a, 1, {"annbob"})}),
        slots.of({use(a)}, Combine::sequence, "ann"),
        slots.of({Slots::use(a, 1, {"ann"})}, Combine::sequence, "ann"),
    };
    for (const auto& one : all) {
        REQUIRE(one.size() == 1);
        different.insert(one[0].text);
    }
    CHECK(different.size() == all.size());
    CHECK(slots.of({Slots::use(a, 1, {"bob", "ann", "bob"})}) == slots.of({Slots::use(a, 1, {"ann", "bob"})}));
}

TEST_CASE("how several states combine keeps blocks apart", "[engine]") {
    Slots slots;
    const SlotId a = slots.put("aaaa");
    const SlotId b = slots.put("bbbb");
    for (const SlotId slot : {a, b}) slots.modules[slot].states = {state_layer()};
    CHECK(slots.of({Slots::use(a), Slots::use(b)}) != slots.of({Slots::use(a), Slots::use(b)}, Combine::parallel));
}

TEST_CASE("before its invocation an aLoRA leaves the blocks to whoever has only the others", "[engine]") {
    Slots slots;
    const SlotId late = slots.put("late", {5, 6});
    const SlotId always = slots.put("always");
    const auto base = slots.of({});

    const auto alone = slots.of({Slots::use(late)});
    REQUIRE(alone.size() == 2);
    CHECK(alone[0] == base[0]);
    CHECK(alone[1].from == 4);
    CHECK(alone[1].text != base[0].text);

    const auto with_other = slots.of({Slots::use(late), Slots::use(always)});
    REQUIRE(with_other.size() == 2);
    CHECK(with_other[0] == slots.of({Slots::use(always)})[0]);
    CHECK(with_other[1].text != alone[1].text);

    // Another place is another context, even where the tokens of a block are the same.
    Slots earlier = slots;
    earlier.prompt = {5, 6, 3, 4, 1, 1, 7, 8};
    CHECK(earlier.of({Slots::use(late)})[0].text != alone[1].text);
    // It was not invoked: the base made everything.
    earlier.prompt = {1, 2, 3};
    CHECK(earlier.of({Slots::use(late)}) == base);
}

TEST_CASE("virtual tokens belong to the whole set from the first position on", "[engine]") {
    Slots slots;
    const SlotId late = slots.put("late", {5, 6});
    const SlotId soft = slots.put("soft", {}, 4);
    const auto both = slots.of({Slots::use(soft), Slots::use(late)});
    REQUIRE(both.size() == 1);
    CHECK(both[0].text != slots.of({Slots::use(soft)})[0].text);
}

TEST_CASE("content without a generation is not cached", "[engine]") {
    Slots slots;
    CHECK(slots.of({Slots::use(slots.put(""))}).empty());
}
