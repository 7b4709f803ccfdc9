// A quantised base under the whole engine: modules of every kind act on it row by row, and none is merged.

#include "engine/kernels/bf16_dot.hpp"
#include "support/audit_pass.hpp"
#include "support/golden_house.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

using namespace attune;

namespace {

constexpr const char* kModel = "llama_gqa_tied";

/// Every adapter that the reference has an answer for.
std::set<std::string> adapters() {
    std::set<std::string> found;
    const auto index = golden::read_json(golden::root() / "index.json");
    for (const auto& entry : index.at("cases")) {
        if (entry.at("model") == kModel && entry.at("kind") == "adapter") found.insert(entry.at("adapter"));
    }
    return found;
}

void check_same(const std::vector<TokenEvent>& a, const std::vector<TokenEvent>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].id == b[i].id);
        CHECK(a[i].scores->chosen.logprob == b[i].scores->chosen.logprob);
    }
}

EngineOptions options_for(const std::filesystem::path& model, const std::string& apply) {
    EngineOptions options;
    options.model = model;
    options.device = "cpu";
    options.module_bytes = 1 << 20;
    options.threads = 1;
    options.apply = apply;
    return options;
}

}  // namespace

TEST_CASE("modules of every kind act on a base whose products round as on a full one, to the bit alone and in a batch",
          "[engine][modules][quant][bf16]") {
    const std::string dtype = GENERATE(as<std::string>{}, "int8", "bf16");
    if (dtype == "bf16" && bf16_dot_kernels() == nullptr) return;
    CAPTURE(dtype);
    GoldenHouse house(kModel, {.dtype = dtype, .activations = dtype == "bf16" ? "bf16" : "f32"});
    const auto prompts = golden::read_case(kModel, "base").prompts;
    std::vector<std::shared_ptr<RecordingSink>> alone;
    const auto names = adapters();
    REQUIRE(names.size() > 20);
    for (const std::string& name : names) {
        CAPTURE(name);
        const golden::Prompt expected = golden::read_case(kModel, name).prompts[2];
        alone.push_back(house.add(expected.tokens, greedy_with_whole_rows(house.engine->shape().vocab_size),
                                  house.modules_of(name)));
        REQUIRE(house.run());
        // Random weights: log-probabilities down to -20, which eight bits and a bf16 module shake a little.
        CHECK(prompt_difference_from(expected, *alone.back()) < 0.6F);
        house.clear();
    }
    // All of them in one batch, as far as their slots fit, with the base in between.
    std::vector<std::shared_ptr<RecordingSink>> together;
    for (const std::string& name : names) {
        house.add(prompts[1].tokens);
        together.push_back(house.add(golden::read_case(kModel, name).prompts[2].tokens,
                                     greedy_with_whole_rows(house.engine->shape().vocab_size), house.modules_of(name)));
    }
    REQUIRE(house.run());
    std::size_t i = 0;
    for (const std::string& name : names) {
        CAPTURE(name);
        check_same(together[i]->tokens(), alone[i]->tokens());
        ++i;
    }
}

TEST_CASE("B24: on a quantised base merging is refused by setting, and auto answers as row by row, to the bit",
          "[engine][merge][quant][B24]") {
    const auto file = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_models" / kModel / "q8_0.gguf";
    for (const auto& [path, dtype] : std::vector<std::pair<std::filesystem::path, std::string>>{
             {golden::model_folder(kModel), "int8"}, {golden::model_folder(kModel), "int4"}, {file, "auto"}}) {
        CAPTURE(path.filename(), dtype);
        EngineOptions options = options_for(path, "merged");
        options.dtype = dtype;
        const auto refused = Engine::open(options, nullptr);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().param == "scheduler.apply");
        CHECK(refused.error().message.find("batched") != std::string::npos);
        options.dtype = "bf16";
        CHECK(Engine::open(options, nullptr));
    }

    const auto prompt = golden::read_case(kModel, "lora_r4").prompts[1].tokens;
    for (const auto& [dtype, path] :
         std::vector<std::pair<std::string, std::filesystem::path>>{{"int8", {}}, {"int4", {}}, {"auto", file}}) {
        CAPTURE(dtype);
        const auto answer = [&](const std::string& apply, const std::string& form) {
            // Every look at the clock takes a millisecond: long enough for auto to merge into a full base.
            const auto time = std::make_shared<TimePoint>();
            GoldenHouse house(kModel, {.dtype = form,
                                       .apply = apply,
                                       .now = [time] { return *time += std::chrono::milliseconds(1); },
                                       .file = path});
            const bool merges = apply == "auto" && form == "bf16";
            CHECK(house.engine->stats().can_merge == (form == "bf16"));
            const auto sink = house.add(prompt, GoldenHouse::greedy(60), house.modules_of("lora_r4"));
            REQUIRE(house.run());
            CHECK((sink->one<Finished>()->apply == ApplyMode::batched) == !merges);
            CHECK((house.merges == 0) == !merges);
            CHECK(is_clean(*house.engine->audit()));
            return sink->tokens();
        };
        check_same(answer("auto", dtype), answer("batched", dtype));
        answer("auto", "bf16");
    }
    // A clone to restore from would hold the base twice for nothing.
    const auto weight_bytes = [](const char* restore_from) {
        return GoldenHouse(kModel, {.dtype = "int8", .restore_from = restore_from}).engine->stats().weight_bytes;
    };
    CHECK(weight_bytes("clone") == weight_bytes("file"));
}

TEST_CASE("weights in fewer bits take fewer bytes, and a word that is none of the dtypes is refused",
          "[engine][quant]") {
    std::vector<std::uint64_t> bytes;
    for (const char* dtype : {"f32", "bf16", "int8", "int4"})
        bytes.push_back(GoldenHouse(kModel, {.dtype = dtype}).engine->stats().weight_bytes);
    CHECK(bytes[1] < bytes[0] * 6 / 10);
    CHECK(bytes[2] < bytes[1] * 6 / 10);
    CHECK(bytes[3] < bytes[2] * 9 / 10);
    EngineOptions options = options_for(golden::model_folder(kModel), "batched");
    options.activations = "f16";
    CHECK(Engine::open(options, nullptr).error().param == "model.activations");
    options.activations = "f32";
    options.dtype = "int2";
    CHECK(Engine::open(options, nullptr).error().param == "model.dtype");
    options.dtype = "int8";
    options.kernels = "torch";
    CHECK(Engine::open(options, nullptr).error().param == "model.dtype");
}
