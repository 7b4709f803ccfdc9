#include "engine/engine.hpp"

#include "engine/free_memory.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/lora.hpp"
#include "engine/kernels/quant_kernels.hpp"
#include "support/golden_house.hpp"

#include "support/kernel_words.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

EngineOptions tiny() {
    EngineOptions options;
    options.model = golden::model_folder("llama_gqa_tied");
    options.device = "cpu";
    options.module_bytes = 1 << 20;
    options.threads = 1;
    return options;
}

std::string refused_param(const EngineOptions& options) {
    const auto opened = Engine::open(options, nullptr);
    return opened ? "" : opened.error().param;
}

}  // namespace

TEST_CASE("words that name no device, dtype or kernels are refused by setting", "[engine]") {
    EngineOptions options = tiny();
    for (const char* word : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cuda:999"}) {
        options.device = word;
        CHECK(refused_param(options) == "model.device");
    }
    options = tiny();
    options.dtype = "f8";
    CHECK(refused_param(options) == "model.dtype");
    options = tiny();
    options.slot_dtype = "int4";
    CHECK(refused_param(options) == "modules.slot_dtype");
    options = tiny();
    options.kernels = "fast";
    CHECK(refused_param(options) == "model.kernels");
    options = tiny();
    options.kv_bytes = 16;
    CHECK(refused_param(options) == "model.kv_bytes");
}

TEST_CASE("model.kernels bounds the instruction set of every kernel", "[engine]") {
    EngineOptions options = tiny();
    for (const std::string& word : testing::kernel_words()) {
        options.kernels = word;
        REQUIRE(Engine::open(options, nullptr));
        CHECK(instruction_set_limit() == *parse_instruction_set(word));
        if (word == "auto") continue;
        CHECK(cpu_kernels().name == word);
        CHECK(lora_kernels().name == word);
        CHECK(std::string_view(quant_kernels().name) == (word == "x86-64-v4" ? "x86-64-v3" : word));
    }
    limit_instruction_set(InstructionSet::best);
}

TEST_CASE("a folder that holds no model is refused without naming the folder", "[engine]") {
    EngineOptions options = tiny();
    options.model = golden::root() / "no-such-model";
    const auto opened = Engine::open(options, nullptr);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().message.find(golden::root().string()) == std::string::npos);
}

TEST_CASE("the pool holds at least one whole context when memory allows", "[engine]") {
    const auto engine = Engine::open(tiny(), nullptr);
    REQUIRE(engine);
    const EngineStats stats = (*engine)->stats();
    CHECK(stats.total_blocks * kBlockTokens >= (*engine)->shape().max_context);
    CHECK(stats.free_blocks == stats.total_blocks);
    CHECK(stats.weight_bytes > 0);
    CHECK((*engine)->audit() != nullptr);
}

TEST_CASE("max_context and kv_bytes bound the context that is served", "[engine]") {
    EngineOptions options = tiny();
    options.max_context = 48;
    auto engine = Engine::open(options, nullptr);
    REQUIRE(engine);
    CHECK((*engine)->shape().max_context == 48);
    options.dtype = "f32";
    options.max_context = 0;
    options.kv_bytes = 64 << 10;
    engine = Engine::open(options, nullptr);
    REQUIRE(engine);
    CHECK((*engine)->shape().max_context <= (*engine)->stats().total_blocks * kBlockTokens);
}

TEST_CASE("bf16 is the default and answers like f32 where the choice is clear", "[engine]") {
    const golden::Prompt prompt = golden::read_case("llama_gqa_tied", "base").prompts[1];
    const auto engine = Engine::open(tiny(), nullptr);
    REQUIRE(engine);
    auto job = std::make_unique<Job>();
    job->id = RequestId{1};
    job->prompt = prompt.tokens;
    job->sampling = GoldenHouse::greedy(1);
    const auto sink = std::make_shared<RecordingSink>();
    job->sink = sink;
    (*engine)->add(std::move(job));
    while ((*engine)->has_work()) (*engine)->step();
    REQUIRE(sink->tokens().size() == 1);
    const TokenScores scores = *sink->tokens()[0].scores;
    CHECK(scores.chosen.id == prompt.top5[0].ids[0]);
    CHECK(scores.chosen.logprob == Approx(prompt.top5[0].logprobs[0]).margin(0.1));
}

TEST_CASE("free memory is what the machine could still give", "[engine]") {
    CHECK(free_memory_bytes() > 1 << 20);
    CHECK(free_memory_bytes() < 1ULL << 50);
}
