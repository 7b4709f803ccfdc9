#include <torch/torch.h>

#include "engine/module/module_slots.hpp"
#include "engine/slots/slot_rows.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attune {
namespace {

using namespace testing;

using Change = std::function<void(Module&)>;

TEST_CASE("a module of any kind whose arrays do not fit the base is refused by its part", "[engine][slots]") {
    const ModelShape base = small_base();
    const std::vector<std::pair<Change, std::string>> changes{
        {[](Module& m) { m.outputs[1].add.pop_back(); }, "layer 0 k_proj has another base's shape"},
        {[](Module& m) { m.outputs[0].gain.push_back(0); }, "layer 0 q_proj has another base's shape"},
        {[](Module& m) { m.outputs[0].layer = 9; }, "layer 9 q_proj is not in this base"},
        {[](Module& m) { m.outputs[1] = m.outputs[0]; }, "layer 0 q_proj is there twice"},
        {[](Module& m) { m.inputs[0].gain.pop_back(); }, "layer 0 k_proj has another base's shape"},
        {[](Module& m) { m.pairs.back().layer = 1; }, "layer 1 lm_head is not in this base"},
        {[](Module& m) { m.pairs[1].b.pop_back(); }, "layer 0 k_proj has another base's shape"},
        {[](Module& m) { m.pairs[1].rank = 99; }, "layer 0 k_proj has rank 99, the limit is 64"},
        {[](Module& m) { m.embedding->rank = 65; }, "the embedding has rank 65, the limit is 64"},
        {[](Module& m) { m.embedding->a.pop_back(); }, "the embedding has another base's shape"},
        {[](Module& m) { m.embedding->tokens[1] = 1; }, "its tokens are not in ascending order"},
        {[](Module& m) { m.embedding->tokens.back() = 32; },
         "a replaced row of the embedding is outside of this base's vocabulary"},
        {[](Module& m) { m.head_rows->tokens[0] = -1; },
         "a replaced row of the head is outside of this base's vocabulary"},
        {[](Module& m) { m.head_rows->rows.pop_back(); }, "a replaced row of the head has another base's shape"},
        {[](Module& m) { m.norms[0].delta.pop_back(); }, "a norm of layer 0 has another base's shape"},
        {[](Module& m) { m.norms[0].site = NormSite::query; }, "a norm of layer 0 has another base's shape"},
        {[](Module& m) { m.norms.back().layer = 1; }, "a norm of layer 1 is not in this base"},
        {[](Module& m) { m.states[0].down.pop_back(); }, "the state of layer 0 has another base's shape"},
        {[](Module& m) { m.states[0].down_bias.pop_back(); }, "the state of layer 0 has another base's shape"},
        {[](Module& m) { m.states[0].width = 0; }, "the state of layer 0 has another base's shape"},
        {[](Module& m) { m.states[1].layer = 2; }, "the state of layer 2 is not in this base"},
        {[](Module& m) { m.states[1].layer = 0; }, "the state of layer 0 is there twice or out of order"},
        {[](Module& m) {
             m.states[0].kind = StateKind::vector;
             m.states[0].vector = {1};
         },
         "the state of layer 0 has another base's shape"},
        {[](Module& m) {
             m.prompt = SoftPrompt{2, {1, 2}};
         },
         "the soft prompt has another base's shape"},
        {[](Module& m) {
             m.prompt = SoftPrompt{0, {}};
         },
         "the soft prompt has another base's shape"},
        {[](Module& m) {
             m.prefix = PrefixSegment{1, {}, {}};
         },
         "the prefix has another base's shape"},
        {[](Module& m) {
             m.prefix = PrefixSegment{-1, {}, {}};
         },
         "the prefix has another base's shape"}};
    ModuleSlots resident(base, options_of(torch::kFloat32, false), torch::kCPU);
    const ModulePtr good = make_kind(base, Kind::all, 2);
    for (const auto& [change, fault] : changes) {
        Module module = *good;
        change(module);
        const auto slot = resident.install(std::make_shared<Module>(std::move(module)));
        CAPTURE(fault);
        REQUIRE_FALSE(slot);
        CHECK(slot.error().code == Errc::invalid_module);
        CHECK(slot.error().message == "module \"m2\": " + fault);
        CHECK(resident.used_bytes() == 0);
    }
    CHECK(resident.install(good));
}

TEST_CASE("a module takes exactly the bytes it was said to need, or none", "[engine][slots]") {
    const ModelShape base = small_base();
    for (int i = 0; i < kKinds; ++i)
        for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
            const ModulePtr module = make_kind(base, static_cast<Kind>(i), 3);
            const std::uint64_t bytes = ModuleSlots::bytes_needed(*module, dtype);
            CAPTURE(i, dtype, bytes);
            REQUIRE(bytes > 0);
            ModuleSlots exact(base, options_of(dtype, false, bytes), torch::kCPU);
            const auto slot = exact.install(module);
            REQUIRE(slot);
            CHECK(exact.used_bytes() == bytes);
            exact.remove(*slot);
            CHECK(exact.used_bytes() == 0);
            for (const std::uint64_t less : {bytes - 64, bytes / 2, std::uint64_t{64}}) {
                if (less >= bytes) continue;
                ModuleSlots small(base, options_of(dtype, false, less), torch::kCPU);
                const auto refused = small.install(module);
                REQUIRE_FALSE(refused);
                CHECK(refused.error().code == Errc::no_room);
                CHECK(small.used_bytes() == 0);
            }
        }
}

}  // namespace
}  // namespace attune
