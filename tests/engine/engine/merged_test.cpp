// Modules merged into the base, by the engine's own policy: the same answers as row by row, and no trace afterwards.

#include "engine/weights/base_audit.hpp"
#include "support/audit_pass.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using namespace attune;

namespace {

/// Every case of one or several adapters that the reference has for this model, and the adapters' weights.
std::map<std::string, std::vector<std::pair<std::string, double>>> cases_of(const std::string& model) {
    std::map<std::string, std::vector<std::pair<std::string, double>>> cases;
    const auto index = golden::read_json(golden::root() / "index.json");
    for (const auto& entry : index.at("cases")) {
        if (entry.at("model") != model) continue;
        auto& adapters = cases[entry.at("case")];
        if (entry.at("kind") == "adapter") adapters.emplace_back(entry.at("adapter"), 1.0);
        if (entry.at("kind") == "weighted" && entry.at("combination") == "cat") {
            for (std::size_t i = 0; i < entry.at("adapters").size(); ++i)
                adapters.emplace_back(entry.at("adapters")[i], entry.at("weights")[i]);
        }
        if (adapters.empty()) cases.erase(entry.at("case"));
    }
    return cases;
}

std::size_t tensor_of(const BaseAudit& audit, const std::string& name) {
    for (std::size_t i = 0; i < audit.tensors(); ++i) {
        if (audit.name(i) == name) return i;
    }
    throw std::runtime_error("no tensor " + name);
}

/// A clock that a test moves.
struct Clock {
    std::shared_ptr<TimePoint> time = std::make_shared<TimePoint>(std::chrono::hours(1));
    Now now() const {
        return [time = time] { return *time; };
    }
    void pass(int milliseconds) const { *time += std::chrono::milliseconds(milliseconds); }
};

constexpr const char* kModel = "qwen2_bias";

std::vector<TokenId> a_prompt() { return golden::read_case(kModel, "base").prompts[1].tokens; }

ApplyMode applied(const RecordingSink& sink) { return sink.finished().value().apply; }

}  // namespace

TEST_CASE("every case answers merged as the reference does, and says how its modules were put on the base",
          "[engine][golden][merge][B14]") {
    // By name, since each speaks of one kind: what acts on some rows only, what changes no matrix, replaced head rows.
    const std::set<std::string> batched{"alora", "prefix5", "prompt6", "lora_save_head"};
    for (const std::string& model : golden::models()) {
        GoldenHouse house(model, {.apply = "merged", .restore_from = model == "qwen3_qknorm" ? "clone" : "file"});
        int merged_cases = 0;
        for (const auto& [name, adapters] : cases_of(model)) {
            INFO(model << " " << name);
            std::vector<JobModule> modules;
            for (const auto& [adapter, weight] : adapters) modules.push_back(house.module(adapter, weight));
            const golden::Case expected = golden::read_case(model, name);
            const int before = house.merges;
            bool all_merged = true;
            for (const golden::Prompt& prompt : expected.prompts) {
                const auto sink =
                    house.add(prompt.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size), modules);
                REQUIRE(house.run());
                CHECK(prompt_difference_from(prompt, *sink) <= golden::kTolerance);
                CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
                all_merged = all_merged && applied(*sink) == ApplyMode::merged;
            }
            if (batched.contains(name)) CHECK_FALSE(all_merged);
            CHECK(all_merged == (house.merges == before + 1));  // the second prompt finds it merged
            merged_cases += all_merged;
            CHECK(is_clean(*house.engine->audit()));
        }
        CHECK(merged_cases >= 8);
        house.clear();
        CHECK_FALSE(house.engine->stats().merged);
        CHECK(is_clean(*house.engine->audit()));
        CHECK(house.all_free());
        const golden::Case base = golden::read_case(model, "base");
        const auto sink = house.add(base.prompts[0].tokens);
        REQUIRE(house.run());
        CHECK(difference_from(base.prompts[0], *sink) <= golden::kTolerance);
        CHECK(applied(*sink) == ApplyMode::batched);
        CHECK(house.merges == house.restores);  // those of emptied slots are told with the next step
    }
}

TEST_CASE("a request of another module waits for the drain at most, then all go on side by side", "[engine][merge]") {
    const Clock clock;
    GoldenHouse house(kModel, {.apply = "merged", .drain_ms = 50, .now = clock.now()});
    const auto expected_a = golden::read_case(kModel, "lora_r4").prompts[1];
    const auto expected_b = golden::read_case(kModel, "lora_r6_qv").prompts[1];
    const auto a = house.add(expected_a.tokens, GoldenHouse::greedy(), {house.module("lora_r4")});
    for (int i = 0; i < 4; ++i) house.step();
    CHECK(house.engine->stats().merged);
    const auto b = house.add(expected_b.tokens, GoldenHouse::greedy(), {house.module("lora_r6_qv")});
    for (int i = 0; i < 5; ++i) {
        house.step();
        clock.pass(10);
        CHECK(b->tokens().empty());
    }
    const auto late = house.add(expected_a.tokens, GoldenHouse::greedy(), {house.module("lora_r4")});
    CHECK(house.engine->stats().merged);
    house.step();  // 50 ms after b came
    CHECK_FALSE(house.engine->stats().merged);
    CHECK(b->tokens().size() == 1);
    CHECK(a->tokens().size() == 10);
    REQUIRE(house.run());
    CHECK(applied(*a) == ApplyMode::mixed);
    CHECK(applied(*b) != ApplyMode::merged);
    for (const auto& sink : {a, late}) CHECK(difference_from(expected_a, *sink) <= golden::kTolerance);
    CHECK(difference_from(expected_b, *b) <= golden::kTolerance);
    CHECK(is_clean(*house.engine->audit()));
}

TEST_CASE("a merged set that nobody runs gives way at once, and new requests of a draining set wait",
          "[engine][merge]") {
    const Clock clock;
    GoldenHouse house(kModel, {.apply = "merged", .drain_ms = 1000, .now = clock.now()});
    const auto first = house.add(a_prompt(), GoldenHouse::greedy(3), {house.module("lora_r4")});
    REQUIRE(house.run());
    CHECK(house.engine->stats().merged);  // it stays for the next one
    const auto base = house.add(a_prompt(), GoldenHouse::greedy(2));
    house.step();
    CHECK(base->tokens().size() == 1);
    CHECK_FALSE(house.engine->stats().merged);
    REQUIRE(house.run());
    CHECK(applied(*base) == ApplyMode::batched);

    const auto running = house.add(a_prompt(), GoldenHouse::greedy(6), {house.module("lora_r4")});
    for (int i = 0; i < 2; ++i) house.step();
    const auto other = house.add(a_prompt(), GoldenHouse::greedy(2));
    house.step();
    const auto same = house.add(a_prompt(), GoldenHouse::greedy(2), {house.module("lora_r4")});
    house.step();
    CHECK(running->tokens().size() == 4);
    CHECK(same->tokens().empty());
    for (int i = 0; i < 3; ++i) house.step();  // two more tokens, then the base
    CHECK(applied(*running) == ApplyMode::merged);
    CHECK(other->tokens().size() == 1);
    CHECK(same->tokens().size() == 1);
    REQUIRE(house.run());
}

TEST_CASE("cached blocks are shared within one way of putting modules on the base, mixed ones not at all",
          "[engine][merge]") {
    const Clock clock;
    GoldenHouse house(kModel, {.apply = "merged", .drain_ms = 0, .now = clock.now()});
    std::vector<TokenId> prompt(40);
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(3 + 7 * i % 100);
    const std::vector<JobModule> modules = house.modules_of("lora_r4");
    const auto ask = [&](bool beside_the_base, std::size_t tokens) {
        std::shared_ptr<RecordingSink> base;
        if (beside_the_base) base = house.add(a_prompt(), GoldenHouse::greedy(30));
        auto params = GoldenHouse::greedy(1);
        const auto sink =
            house.add({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(tokens)}, params, modules);
        REQUIRE(house.run());
        CHECK(applied(*sink) == (beside_the_base ? ApplyMode::batched : ApplyMode::merged));
        return sink->finished()->usage.cached_tokens;
    };
    CHECK(ask(false, 40) == 0);
    CHECK(ask(false, 40) == 32);
    CHECK(ask(true, 40) == 0);  // made by other arithmetic
    CHECK(ask(true, 40) == 32);
    CHECK(ask(false, 40) == 32);

    // Begun merged, gone on batched: its blocks from the switch on serve nobody.
    const auto mixed = house.add(a_prompt(), GoldenHouse::greedy(60), modules);
    for (int i = 0; i < 3; ++i) house.step();
    const auto base = house.add(a_prompt(), GoldenHouse::greedy(60));
    REQUIRE(house.run());
    REQUIRE(applied(*mixed) == ApplyMode::mixed);
    std::vector<TokenId> longer = a_prompt();
    for (const TokenId id : mixed->ids()) longer.push_back(id);
    prompt = longer;
    CHECK(ask(false, longer.size()) == 0);
    CHECK(ask(true, longer.size()) == 0);
}

TEST_CASE("a LoRA on the head acts merged or not, also where the head is the embedding", "[engine][merge]") {
    for (const char* const model : {"llama_gqa_tied", "llama3_rope"}) {
        INFO(model);
        GoldenHouse batched(model);
        GoldenHouse merged(model, {.apply = "merged"});
        const ModelShape& shape = merged.engine->shape();
        auto module = std::make_shared<Module>();
        module->id = {"head", std::string(64, 'a')};
        for (const Projection projection : {Projection::q, Projection::head}) {
            LowRankPair pair{0, projection, 1, 1.0F, {}, {}};
            for (int i = 0; i < shape.in_features(projection); ++i)
                pair.a.push_back(0.05F * static_cast<float>(i % 7 - 3));
            for (int i = 0; i < shape.out_features(projection); ++i)
                pair.b.push_back(0.1F * static_cast<float>(i % 5 - 2));
            module->pairs.push_back(std::move(pair));
        }
        std::swap(module->pairs[0], module->pairs[1]);  // the head comes first
        const auto prompt = golden::read_case(model, "base").prompts[2].tokens;
        const auto plain = batched.add(prompt, GoldenHouse::greedy());
        const auto expected = batched.add(prompt, GoldenHouse::greedy(), {batched.install(module)});
        REQUIRE(batched.run());
        const auto sink = merged.add(prompt, GoldenHouse::greedy(), {merged.install(module)});
        REQUIRE(merged.run());
        CHECK(applied(*sink) == ApplyMode::merged);
        CHECK(difference_between(expected->tokens(), sink->tokens()) <= golden::kTolerance);
        CHECK(difference_between(plain->tokens(), sink->tokens()) > golden::kTolerance);
    }
}

TEST_CASE("an upgrade under a merged set ends truthfully", "[engine][merge]") {
    GoldenHouse house(kModel, {.apply = "merged"});
    const auto expected = golden::read_case(kModel, "lora_r4").prompts[1];
    const auto sink = house.add(expected.tokens);
    house.step();
    REQUIRE(house.engine->switch_modules(RequestId{1}, {house.module("lora_r4")}));
    REQUIRE(house.run());
    const auto finished = sink->finished().value();
    CHECK(finished.apply == ApplyMode::merged);  // of the tokens that modules made
    REQUIRE(finished.served.size() == 2);
    CHECK(finished.served[0].modules.empty());
}

TEST_CASE("auto merges when the saved time has paid for it, and not before", "[engine][merge]") {
    auto time = std::make_shared<TimePoint>(std::chrono::hours(1));
    // Every look at the clock takes a millisecond.
    GoldenHouse house(kModel, {.apply = "auto", .now = [time] { return *time += std::chrono::milliseconds(1); }});
    const auto sink = house.add(a_prompt(), GoldenHouse::greedy(60), {house.module("lora_r4")});
    house.step();
    CHECK_FALSE(house.engine->stats().merged);
    REQUIRE(house.run());
    CHECK(house.merges == 1);
    CHECK(applied(*sink) == ApplyMode::mixed);
    CHECK(sink->tokens().size() == 60);
    CHECK(is_clean(*house.engine->audit()));
}

TEST_CASE("a set that would overflow the base's dtype is served row by row, and the base is intact",
          "[engine][merge][B23]") {
    GoldenHouse house(kModel, {.apply = "merged"});
    const ModelShape& shape = house.engine->shape();
    auto module = std::make_shared<Module>();
    module->id = {"huge", std::string(64, 'a')};
    LowRankPair pair{shape.layer_count() - 1,
                     Projection::down,
                     1,
                     1.0F,
                     std::vector<float>(static_cast<std::size_t>(shape.intermediate_size), 0.0F),
                     std::vector<float>(static_cast<std::size_t>(shape.hidden_size), 2e38F)};
    pair.a[0] = 2.0F;
    module->pairs.push_back(std::move(pair));
    const auto sink = house.add(a_prompt(), GoldenHouse::greedy(1), {house.install(module)});
    const StepReport report = house.step();
    CHECK_THAT(report.not_merged, Catch::Contains("not finite"));
    CHECK_FALSE(report.damage);
    CHECK_FALSE(house.engine->stats().merged);
    CHECK(is_clean(*house.engine->audit()));
    CHECK(house.step().not_merged.empty());  // not tried again
    REQUIRE(house.run());
}

TEST_CASE("a damaged tensor is told instead of merged into, and nothing is computed before it is restored",
          "[engine][merge][audit]") {
    GoldenHouse house(kModel, {.apply = "merged"});
    const auto expected = golden::read_case(kModel, "lora_r4").prompts[1];
    const auto audit = house.engine->audit();
    const std::size_t tensor = tensor_of(*audit, "model.layers.0.self_attn.q_proj.weight");
    audit->flip_bit(tensor, 5);
    const auto sink = house.add(expected.tokens, GoldenHouse::greedy(), {house.module("lora_r4")});
    const StepReport report = house.step();
    REQUIRE(report.damage);
    CHECK(report.damage->code == Errc::base_damaged);
    CHECK(report.rows == 0);
    CHECK(sink->tokens().empty());
    CHECK_FALSE(house.engine->stats().merged);
    REQUIRE(house.engine->restore_base({tensor}, steady_now()));
    REQUIRE(house.run());
    CHECK(difference_from(expected, *sink) <= golden::kTolerance);
    CHECK(applied(*sink) == ApplyMode::merged);
    CHECK(is_clean(*audit));
}

TEST_CASE("a repaired base computes again what got no token from the damage, and ends what did",
          "[engine][merge][audit]") {
    const Clock clock;
    GoldenHouse house(kModel, {.apply = "merged", .now = clock.now()});
    const auto expected = golden::read_case(kModel, "lora_r4").prompts[1];
    const auto audit = house.engine->audit();
    const std::size_t tensor = tensor_of(*audit, "model.layers.1.mlp.down_proj.weight");
    const auto modules = house.modules_of("lora_r4");
    const auto early = house.add(expected.tokens, GoldenHouse::greedy(), modules);
    for (int i = 0; i < 3; ++i) house.step();
    REQUIRE(house.engine->stats().merged);
    clock.pass(10);
    TimePoint good = *clock.time;
    audit->flip_bit(tensor, 9);
    const auto late = house.add(expected.tokens, GoldenHouse::greedy(), modules);
    // No step between the damage and its repair: all are computed again, from their tokens.
    REQUIRE(house.engine->restore_base({tensor}, good));
    CHECK_FALSE(house.engine->stats().merged);
    CHECK(is_clean(*audit));
    REQUIRE(house.run());
    for (const auto& sink : {early, late}) CHECK(difference_from(expected, *sink) <= golden::kTolerance);

    const auto scored = house.add(expected.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size), modules);
    clock.pass(10);
    good = *clock.time;
    audit->flip_bit(tensor, 9);
    house.step();
    const auto fresh = house.add(expected.tokens, GoldenHouse::greedy(), modules);
    REQUIRE(house.engine->restore_base({tensor}, good));
    CHECK(scored->failure().value().code == Errc::base_damaged);
    REQUIRE(house.run());
    CHECK(difference_from(expected, *fresh) <= golden::kTolerance);
    CHECK(house.all_free());
}

TEST_CASE("prompt scores that were gathered from damaged weights are gathered again", "[engine][merge][audit]") {
    const Clock clock;
    GoldenHouse house(kModel, {.step_tokens = 4, .now = clock.now()});
    auto prompts = golden::read_case(kModel, "base").prompts;
    const golden::Prompt expected =
        *std::ranges::max_element(prompts, {}, [](const golden::Prompt& prompt) { return prompt.tokens.size(); });
    REQUIRE(expected.tokens.size() > 8);
    const auto audit = house.engine->audit();
    const std::size_t tensor = tensor_of(*audit, "model.layers.1.mlp.down_proj.weight");
    const auto sink = house.add(expected.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size));
    audit->flip_bit(tensor, 3);
    house.step();
    REQUIRE(house.engine->restore_base({tensor}, *clock.time));
    REQUIRE(house.run());
    CHECK(prompt_difference_from(expected, *sink) <= golden::kTolerance);
}
