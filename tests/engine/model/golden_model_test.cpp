#include "engine/model/model.hpp"

#include "engine/kernels/bf16_dot.hpp"
#include "engine/model/step_maker.hpp"
#include "support/golden.hpp"
#include "support/kernel_words.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::StepMaker;
using attune::testing::TestSequence;

namespace {

constexpr int kBlocks = 64;

struct Setup {
    std::unique_ptr<Model> model;
    std::unique_ptr<ModuleSlots> slots;
    std::unique_ptr<KvCache> kv;
    StepMaker steps{kBlocks};

    Setup(const std::string& name, bool torch_kernels, torch::Dtype dtype = torch::kFloat32,
          bool bf16_activations = false) {
        auto loaded = load_model(golden::model_folder(name),
                                 {torch::kCPU, dtype, torch_kernels, WeightBits::full, bf16_activations});
        if (!loaded) throw std::runtime_error(loaded.error().message);
        model = std::move(*loaded);
        slots = std::make_unique<ModuleSlots>(model->shape(), ModuleSlots::Options{1 << 16, torch::kFloat32, 64},
                                              torch::kCPU);
        kv = std::make_unique<KvCache>(model->shape(), kBlocks, dtype, torch::kCPU, torch_kernels, bf16_activations);
    }

    /// Logits of every row of the step.
    std::vector<std::vector<float>> run(const Batch& batch) {
        const c10::InferenceMode guard;
        return rows(model->logits(model->forward(batch, *kv, *slots), batch, *slots));
    }

    /// The same for a whole prompt.
    std::vector<std::vector<float>> prompt(const std::vector<TokenId>& tokens) {
        TestSequence sequence{tokens};
        return run(steps.step({{&sequence, static_cast<int>(tokens.size())}}));
    }

    static std::vector<std::vector<float>> rows(const torch::Tensor& logits) {
        std::vector<std::vector<float>> out;
        for (std::int64_t row = 0; row < logits.size(0); ++row) {
            const float* at = logits.const_data_ptr<float>() + row * logits.size(1);
            out.emplace_back(at, at + logits.size(1));
        }
        return out;
    }
};

/// The largest difference between logits and the reference's for consecutive rows of a prompt.
float difference(const golden::Prompt& prompt, int first, const std::vector<std::vector<float>>& logits) {
    float largest = 0;
    for (std::size_t row = 0; row < logits.size(); ++row) {
        const auto expected = prompt.logits.row(static_cast<std::size_t>(first) + row);
        largest = std::max(largest, golden::max_difference(logits[row], expected));
    }
    return largest;
}

int argmax(const std::vector<float>& logits) {
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<float> log_softmax(const std::vector<float>& logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float value : logits) sum += std::exp(value - top);
    std::vector<float> out;
    for (const float value : logits) out.push_back(static_cast<float>(value - top - std::log(sum)));
    return out;
}

}  // namespace

TEST_CASE("every golden model gives the reference's logits for whole prompts", "[engine][model][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string kernels = GENERATE(from_range(testing::kernel_words()), std::string("torch"));
    CAPTURE(name, kernels);
    const bool torch_kernels = kernels == "torch";
    if (!torch_kernels) limit_instruction_set(*parse_instruction_set(kernels));
    Setup setup(name, torch_kernels);
    const golden::Case reference = golden::read_case(name, "base");
    for (const golden::Prompt& prompt : reference.prompts) {
        TestSequence sequence{prompt.tokens};
        const Batch batch = setup.steps.step({{&sequence, static_cast<int>(prompt.tokens.size())}});
        CHECK(difference(prompt, 0, setup.run(batch)) <= golden::kTolerance);
    }
    limit_instruction_set(InstructionSet::best);
}

TEST_CASE("a prompt read in chunks gives the logits of the whole", "[engine][model][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    const int chunk = GENERATE(1, 3, 7);
    CAPTURE(name, torch_kernels, chunk);
    Setup setup(name, torch_kernels);
    const golden::Case reference = golden::read_case(name, "base");
    for (const golden::Prompt& prompt : reference.prompts) {
        TestSequence sequence{prompt.tokens};
        const int size = static_cast<int>(prompt.tokens.size());
        while (sequence.done < size) {
            const int first = sequence.done;
            const Batch batch = setup.steps.step({{&sequence, std::min(chunk, size - first)}});
            CHECK(difference(prompt, first, setup.run(batch)) <= golden::kTolerance);
        }
    }
}

TEST_CASE("prompts mixed in one batch, joining at different steps, give the logits of each alone",
          "[engine][model][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string kernels = GENERATE(from_range(testing::kernel_words()), std::string("torch"));
    CAPTURE(name, kernels);
    const bool torch_kernels = kernels == "torch";
    if (!torch_kernels) limit_instruction_set(*parse_instruction_set(kernels));
    Setup setup(name, torch_kernels);
    const golden::Case reference = golden::read_case(name, "base");
    std::vector<TestSequence> sequences;
    for (const golden::Prompt& prompt : reference.prompts) sequences.push_back({prompt.tokens});

    int unfinished = static_cast<int>(sequences.size());
    for (int now = 0; unfinished > 0; ++now) {
        REQUIRE(now < 40);
        std::vector<std::pair<TestSequence*, int>> wanted;
        std::vector<std::pair<std::size_t, int>> parts;  // prompt, first row within it
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            // Prompt 3 starts first, prompt 0 last; chunks of 1 to 4 tokens.
            const int left = static_cast<int>(sequences[i].tokens.size()) - sequences[i].done;
            if (left == 0 || now < static_cast<int>(sequences.size() - 1 - i)) continue;
            parts.emplace_back(i, sequences[i].done);
            wanted.emplace_back(&sequences[i], std::min(left, static_cast<int>(i) + 1));
            if (wanted.back().second == left) --unfinished;
        }
        const Batch batch = setup.steps.step(wanted);
        const auto logits = setup.run(batch);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            const BatchSequence& entry = batch.sequences[s];
            const std::vector<std::vector<float>> own(logits.begin() + entry.first_row,
                                                      logits.begin() + entry.first_row + entry.rows);
            CHECK(difference(reference.prompts[parts[s].first], parts[s].second, own) <= golden::kTolerance);
        }
    }
}

TEST_CASE("greedy decoding in one batch follows the reference's tokens and log-probabilities",
          "[engine][model][golden]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string kernels = GENERATE(from_range(testing::kernel_words()), std::string("torch"));
    CAPTURE(name, kernels);
    const bool torch_kernels = kernels == "torch";
    if (!torch_kernels) limit_instruction_set(*parse_instruction_set(kernels));
    Setup setup(name, torch_kernels);
    const golden::Case reference = golden::read_case(name, "base");
    std::vector<TestSequence> sequences;
    std::vector<std::pair<TestSequence*, int>> wanted;
    for (const golden::Prompt& prompt : reference.prompts) sequences.push_back({prompt.tokens});
    for (TestSequence& sequence : sequences) wanted.emplace_back(&sequence, static_cast<int>(sequence.tokens.size()));

    for (int step = 0; step < 32; ++step) {
        const Batch batch = setup.steps.step(wanted);
        const auto logits = setup.run(batch);
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            const BatchSequence& entry = batch.sequences[i];
            const auto& last = logits[static_cast<std::size_t>(entry.first_row + entry.rows - 1)];
            const golden::Prompt& prompt = reference.prompts[i];
            const auto at = static_cast<std::size_t>(step);
            if (step < prompt.safe_steps) {
                CHECK(argmax(last) == prompt.continuation[at]);
                const auto logprobs = log_softmax(last);
                for (std::size_t k = 0; k < prompt.top5[at].ids.size(); ++k) {
                    const auto id = static_cast<std::size_t>(prompt.top5[at].ids[k]);
                    CHECK(std::fabs(logprobs[id] - prompt.top5[at].logprobs[k]) <= golden::kTolerance);
                }
            }
            // The reference's token goes on, so that later steps stay comparable.
            sequences[i].tokens.push_back(prompt.continuation[at]);
            wanted[i].second = 1;
        }
    }
}

TEST_CASE("the paged path and the plain one give the same logits", "[engine][model]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string kernels = GENERATE(from_range(testing::kernel_words()), std::string("torch"));
    CAPTURE(name, kernels);
    const bool torch_kernels = kernels == "torch";
    if (!torch_kernels) limit_instruction_set(*parse_instruction_set(kernels));
    Setup setup(name, torch_kernels);
    const golden::Case reference = golden::read_case(name, "base");
    TestSequence a{reference.prompts[2].tokens};
    TestSequence b{reference.prompts[3].tokens};
    const Batch batch = setup.steps.step({{&a, 11}, {&b, 18}});
    const auto paged = setup.run(batch);
    const c10::InferenceMode guard;
    const auto plain =
        Setup::rows(setup.model->logits(setup.model->forward_plain(batch, *setup.slots), batch, *setup.slots));
    for (std::size_t row = 0; row < paged.size(); ++row)
        CHECK(golden::max_difference(paged[row], plain[row]) <= golden::kTolerance);
}

TEST_CASE("bfloat16 weights and cache stay near the float32 logits", "[engine][model]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    CAPTURE(name, torch_kernels);
    Setup setup(name, torch_kernels, torch::kBFloat16);
    const golden::Case reference = golden::read_case(name, "base");
    const golden::Prompt& prompt = reference.prompts[3];
    TestSequence sequence{prompt.tokens};
    const Batch batch = setup.steps.step({{&sequence, 18}});
    const float off = difference(prompt, 0, setup.run(batch));
    // Eight bits of mantissa on logits of +-9; float32 would be a thousand times closer, so equality would be a bug.
    CHECK(off < 0.35F);
    CHECK(off > 1e-4F);
}

TEST_CASE("a row's logits on our kernels have the same bits alone, in a batch and at any chunking", "[engine][model]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    const bool bf16_activations = GENERATE(false, true);
    if (bf16_activations && bf16_dot_kernels() == nullptr) return;
    CAPTURE(name, dtype, bf16_activations);
    Setup setup(name, false, dtype, bf16_activations);
    const golden::Case reference = golden::read_case(name, "base");
    const std::vector<int>& tokens = reference.prompts[3].tokens;
    TestSequence whole{tokens};
    const auto expected = setup.run(setup.steps.step({{&whole, 18}})).back();

    TestSequence chunked{tokens};
    TestSequence other{reference.prompts[2].tokens};
    setup.run(setup.steps.step({{&chunked, 7}}));
    setup.run(setup.steps.step({{&other, 5}, {&chunked, 4}}));
    setup.run(setup.steps.step({{&chunked, 6}, {&other, 3}}));
    const auto last = setup.run(setup.steps.step({{&other, 3}, {&chunked, 1}})).back();
    CHECK(last == expected);
}

TEST_CASE("golden models with rounded activations stay near the reference's logits", "[engine][model][golden][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    const std::string name = GENERATE(from_range(golden::models()));
    CAPTURE(name);
    Setup rounded(name, false, torch::kBFloat16, true);
    Setup exact(name, false, torch::kBFloat16);
    for (const golden::Prompt& prompt : golden::read_case(name, "base").prompts) {
        const auto logits = rounded.prompt(prompt.tokens);
        // The same eight bits as the weights have, on logits of +-9.
        CHECK(difference(prompt, 0, logits) < 0.35F);
        const auto unrounded = exact.prompt(prompt.tokens);
        float largest = 0;
        for (std::size_t row = 0; row < logits.size(); ++row)
            largest = std::max(largest, golden::max_difference(logits[row], unrounded[row]));
        CHECK(largest < 0.25F);
        CHECK(largest > 1e-4F);
    }
}

TEST_CASE("rounded activations change nothing where no weight is bfloat16", "[engine][model][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    const std::string name = golden::models().front();
    const std::vector<int> tokens = golden::read_case(name, "base").prompts[2].tokens;
    CHECK(Setup(name, false, torch::kFloat32, true).prompt(tokens) == Setup(name, false).prompt(tokens));
}

TEST_CASE("rounded activations are refused where nothing multiplies them", "[engine][model][bf16]") {
    ModelOptions options;
    options.dtype = torch::kBFloat16;
    options.bf16_activations = true;
    const auto folder = golden::model_folder(golden::models().front());
    limit_instruction_set(InstructionSet::v4);
    const auto refused = load_model(folder, options);
    limit_instruction_set(InstructionSet::best);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::unsupported);
    CHECK(refused.error().param == "model.activations");
    // libtorch's products of bfloat16 weights take bfloat16 anyway.
    options.torch_kernels = true;
    CHECK(load_model(folder, options));
}

TEST_CASE("copied blocks carry a sequence's past to another table", "[engine][model][kv]") {
    const bool torch_kernels = GENERATE(false, true);
    CAPTURE(torch_kernels);
    Setup setup("mistral_swa", torch_kernels);
    const golden::Case reference = golden::read_case("mistral_swa", "base");
    const golden::Prompt& prompt = reference.prompts[3];
    TestSequence first{prompt.tokens};
    setup.run(setup.steps.step({{&first, 17}}));
    TestSequence fork = first;
    fork.blocks = {BlockId{2}, BlockId{5}};
    const std::vector<std::pair<BlockId, BlockId>> pairs{{first.blocks[0], BlockId{2}}, {first.blocks[1], BlockId{5}}};
    setup.kv->copy(pairs);
    const auto logits = setup.run(setup.steps.step({{&fork, 1}}));
    CHECK(difference(prompt, 17, logits) <= golden::kTolerance);
}

TEST_CASE("what other sequences left in a block is never seen, not even infinities", "[engine][model][kv]") {
    const bool torch_kernels = GENERATE(false, true);
    CAPTURE(torch_kernels);
    Setup setup("llama_gqa_tied", torch_kernels);
    const auto& shape = setup.model->shape();
    TestSequence spoiler{std::vector<TokenId>(16, 3)};
    const Batch batch = setup.steps.step({{&spoiler, 16}});
    const KvStep step = setup.kv->prepare(batch);
    const auto infinite = torch::full({16, shape.kv_heads * shape.head_dim}, INFINITY);
    for (int layer = 0; layer < shape.layer_count(); ++layer) setup.kv->write(layer, infinite, infinite, step);

    const golden::Case reference = golden::read_case("llama_gqa_tied", "base");
    TestSequence sequence{reference.prompts[2].tokens, 0, spoiler.blocks};
    CHECK(difference(reference.prompts[2], 0, setup.run(setup.steps.step({{&sequence, 11}}))) <= golden::kTolerance);
}
