// model.activations = bf16: products of bfloat16 weights with rounded activations, in whole models.

#include "engine/model/model.hpp"

#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/instruction_set.hpp"
#include "engine/model/step_maker.hpp"
#include "support/golden.hpp"

#include <memory>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::StepMaker;
using attune::testing::TestSequence;

namespace {

constexpr int kBlocks = 64;

ModelOptions options_with(bool bf16_activations, torch::Dtype dtype = torch::kBFloat16) {
    ModelOptions options;
    options.dtype = dtype;
    options.bf16_activations = bf16_activations;
    return options;
}

/// A model with a bfloat16 cache, as it is served.
struct House {
    std::unique_ptr<Model> model;
    std::unique_ptr<ModuleSlots> slots;
    std::unique_ptr<KvCache> kv;
    StepMaker steps{kBlocks};

    House(const std::string& name, const ModelOptions& options) {
        auto loaded = load_model(golden::model_folder(name), options);
        if (!loaded) throw std::runtime_error(loaded.error().message);
        model = std::move(*loaded);
        slots = std::make_unique<ModuleSlots>(model->shape(), ModuleSlots::Options{1 << 16, torch::kFloat32, 64},
                                              torch::kCPU);
        kv = std::make_unique<KvCache>(model->shape(), kBlocks, options.dtype, torch::kCPU, false,
                                       options.bf16_activations);
    }
    torch::Tensor run(const std::vector<std::pair<TestSequence*, int>>& wanted) {
        const c10::InferenceMode guard;
        const Batch batch = steps.step(wanted);
        return model->logits(model->forward(batch, *kv, *slots), batch, *slots).clone();
    }
    torch::Tensor prompt(const std::vector<TokenId>& tokens) {
        TestSequence sequence{tokens};
        return run({{&sequence, static_cast<int>(tokens.size())}});
    }
};

float worst(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<float>(); }

}  // namespace

TEST_CASE("golden models with rounded activations stay near the reference's logits", "[engine][model][golden][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    const std::string name = GENERATE(from_range(golden::models()));
    CAPTURE(name);
    House rounded(name, options_with(true));
    House exact(name, options_with(false));
    for (const golden::Prompt& prompt : golden::read_case(name, "base").prompts) {
        const torch::Tensor logits = rounded.prompt(prompt.tokens);
        const torch::Tensor expected = torch::tensor(prompt.logits.values).view(prompt.logits.shape);
        // The same eight bits as the weights have, on logits of +-9.
        CHECK(worst(logits, expected) < 0.35F);
        CHECK(worst(logits, exact.prompt(prompt.tokens)) < 0.25F);
        CHECK(worst(logits, exact.prompt(prompt.tokens)) > 1e-4F);
    }
}

TEST_CASE("a row's logits with rounded activations have the same bits alone, in a batch and at any chunking",
          "[engine][model][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    const std::string name = GENERATE(from_range(golden::models()));
    CAPTURE(name);
    House house(name, options_with(true));
    const golden::Case reference = golden::read_case(name, "base");
    const std::vector<int>& tokens = reference.prompts[3].tokens;
    const torch::Tensor expected = house.prompt(tokens)[-1];

    TestSequence chunked{tokens};
    TestSequence other{reference.prompts[2].tokens};
    house.run({{&chunked, 7}});
    house.run({{&other, 5}, {&chunked, 4}});
    house.run({{&chunked, 6}, {&other, 3}});
    CHECK(torch::equal(house.run({{&other, 3}, {&chunked, 1}})[-1], expected));
}

TEST_CASE("rounded activations change nothing where no weight is bfloat16", "[engine][model][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    const std::string name = golden::models().front();
    const std::vector<int> tokens = golden::read_case(name, "base").prompts[2].tokens;
    House with(name, options_with(true, torch::kFloat32));
    House without(name, options_with(false, torch::kFloat32));
    CHECK(torch::equal(with.prompt(tokens), without.prompt(tokens)));
}

TEST_CASE("rounded activations are refused where nothing multiplies them", "[engine][model][bf16]") {
    limit_instruction_set(InstructionSet::v4);
    const auto refused = load_model(golden::model_folder(golden::models().front()), options_with(true));
    limit_instruction_set(InstructionSet::best);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::unsupported);
    CHECK(refused.error().param == "model.activations");
    // libtorch's products of bfloat16 weights take bfloat16 anyway.
    ModelOptions torch_path = options_with(true);
    torch_path.torch_kernels = true;
    CHECK(load_model(golden::model_folder(golden::models().front()), torch_path));
}
