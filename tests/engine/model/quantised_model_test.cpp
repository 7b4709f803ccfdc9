// Whole models on quantised weights: golden models rounded at load, GGUF files kept as they are stored.

#include "engine/model/llama_model.hpp"

#include "engine/files/gguf.hpp"
#include "engine/model/gguf_names.hpp"
#include "engine/model/step_maker.hpp"
#include "engine/model/test_model_folder.hpp"
#include "support/golden.hpp"
#include "support/kernel_words.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::StepMaker;
using attune::testing::TempFolder;
using attune::testing::TestSequence;

namespace {

constexpr int kBlocks = 64;

std::filesystem::path gguf(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_models" / name;
}

std::unique_ptr<LlamaModel> opened(const std::filesystem::path& path, const ModelOptions& options) {
    auto loaded = load_model(path, options);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return std::unique_ptr<LlamaModel>(dynamic_cast<LlamaModel*>(loaded->release()));
}

ModelOptions served_as(std::string_view word) {
    const auto [dtype, bits] = weight_form(word).value();
    return {torch::kCPU, dtype, false, bits};
}

/// A model with a float32 cache, so that nothing but its weights is rounded.
struct House {
    std::unique_ptr<LlamaModel> model;
    ModuleSlots slots;
    KvCache kv;
    StepMaker steps{kBlocks};

    explicit House(std::unique_ptr<LlamaModel> given)
        : model(std::move(given)),
          slots(model->shape(), {1 << 16, torch::kFloat32, 64}, torch::kCPU),
          kv(model->shape(), kBlocks, torch::kFloat32, torch::kCPU) {}

    torch::Tensor run(const std::vector<std::pair<TestSequence*, int>>& wanted) {
        const c10::InferenceMode guard;
        const Batch batch = steps.step(wanted);
        return model->logits(model->forward(batch, kv, slots), batch, slots);
    }
    torch::Tensor prompt(const std::vector<TokenId>& tokens) {
        TestSequence sequence{tokens};
        return run({{&sequence, static_cast<int>(tokens.size())}});
    }
};

/// The same model with every matrix in float32, holding what `model` holds.
std::unique_ptr<LlamaModel> widened(const LlamaModel& model, const std::filesystem::path& config) {
    const TempFolder folder;
    std::filesystem::copy_file(config / "config.json", folder.path() / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    std::map<std::string, testing::RawTensor> tensors;
    for (const auto& [name, place] : model.places()) {
        const torch::Tensor rows =
            place.weight->read_rows(place.part, 0, place.weight->part(place.part).rows).contiguous();
        const float* at = rows.const_data_ptr<float>();
        tensors.emplace(name, testing::f32_tensor(place.shape, std::vector<float>(at, at + rows.numel())));
    }
    testing::write_safetensors(folder.path() / "model.safetensors", tensors);
    return opened(folder.path(), {});
}

float worst(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<float>(); }

}  // namespace

TEST_CASE("golden models rounded at load stay near the reference's logits", "[engine][model][golden][quant]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string form = GENERATE(std::string("int8"), std::string("int4"));
    const std::string kernels = GENERATE(from_range(testing::kernel_words()));
    CAPTURE(name, form, kernels);
    limit_instruction_set(*parse_instruction_set(kernels));
    House house(opened(golden::model_folder(name), served_as(form)));
    CHECK(house.model->is_quantised());
    const golden::Case reference = golden::read_case(name, "base");
    House exact(widened(*house.model, golden::model_folder(name)));
    for (const golden::Prompt& prompt : reference.prompts) {
        const torch::Tensor logits = house.prompt(prompt.tokens);
        const torch::Tensor expected = torch::tensor(prompt.logits.values).view(prompt.logits.shape);
        INFO("from the reference " << worst(logits, expected) << ", by activations alone "
                                   << worst(logits, exact.prompt(prompt.tokens)));
        // Logits of +-9 of random weights, which four bits hold to a fifteenth of their group's range.
        CHECK(worst(logits, expected) < (form == "int8" ? 0.35F : 3.0F));
        // Activations in 127 steps: the same for both.
        CHECK(worst(logits, exact.prompt(prompt.tokens)) < 0.25F);
        CHECK(worst(logits, expected) > 1e-4F);
    }
    limit_instruction_set(InstructionSet::best);
}

TEST_CASE("a row's logits on quantised weights have the same bits alone, in a batch and at any chunking",
          "[engine][model][quant]") {
    const std::string name = GENERATE(from_range(golden::models()));
    const std::string form = GENERATE(std::string("int8"), std::string("int4"));
    CAPTURE(name, form);
    House house(opened(golden::model_folder(name), served_as(form)));
    const golden::Case reference = golden::read_case(name, "base");
    const std::vector<int>& tokens = reference.prompts[3].tokens;
    const torch::Tensor whole = house.prompt(tokens);
    const torch::Tensor expected = whole[-1];

    TestSequence chunked{tokens};
    TestSequence other{reference.prompts[2].tokens};
    house.run({{&chunked, 7}});
    house.run({{&other, 5}, {&chunked, 4}});
    house.run({{&chunked, 6}, {&other, 3}});
    CHECK(torch::equal(house.run({{&other, 3}, {&chunked, 1}})[-1], expected));
}

TEST_CASE("a quantised GGUF file is served as it is stored, near the logits of its decoded values",
          "[engine][model][gguf][quant]") {
    const std::string name = GENERATE(std::string("llama_gqa_tied/q8_0.gguf"), std::string("llama3_rope/q8_0.gguf"),
                                      std::string("qwen2_bias/q8_0.gguf"), std::string("qwen3_qknorm/q8_0.gguf"),
                                      std::string("mistral_swa/q8_0.gguf"), std::string("llama_gqa_tied/mixed.gguf"));
    CAPTURE(name);
    House kept(opened(gguf(name), served_as("auto")));
    House decoded(opened(gguf(name), {}));
    CHECK(kept.model->is_quantised());
    CHECK(kept.model->weight_bytes() < decoded.model->weight_bytes() * 2 / 5);
    CHECK(kept.model->shape().checkpoint == decoded.model->shape().checkpoint);

    const auto header = read_gguf_header(gguf(name));
    REQUIRE(header);
    for (const auto& [ours, place] : kept.model->places()) {
        CAPTURE(ours);
        const StoredTensor* stored = header->tensor(gguf_tensor_name(ours));
        REQUIRE(stored != nullptr);
        const WeightPlace there = decoded.model->places().at(ours);
        const std::int64_t rows = place.weight->part(place.part).rows;
        const torch::Tensor held = place.weight->read_rows(place.part, 0, rows);
        const torch::Tensor values = there.weight->read_rows(there.part, 0, rows);
        const Quant quant = place.weight->part(place.part).quant;
        if (quant != Quant::none && quant == quant_of(stored->type)) {
            CHECK(torch::equal(held, values));
        } else if (quant != Quant::none) {
            CHECK(quant == Quant::int8);
            CHECK(worst(held, values) <= values.abs().max().item<float>() / 250);
        } else {
            CHECK((stored->shape.size() == 1 || block_elements(stored->type) == 1));
            CHECK(worst(held, values) <= values.abs().max().item<float>() / 256);
        }
        // Heals from the file.
        place.weight->flip_bit(place.part, place.weight->part_bytes(place.part) / 2);
        CHECK(place.weight->hash(place.part) != place.weight->expected(place.part));
        REQUIRE(place.weight->reload(place.part));
        CHECK(place.weight->hash(place.part) == place.weight->expected(place.part));
    }
    const std::vector<TokenId> tokens{5, 9, 200, 17, 17, 31, 2, 8, 250, 11};
    const float off = worst(kept.prompt(tokens), decoded.prompt(tokens));
    CHECK(off < 0.25F);
    CHECK(off > 1e-4F);
}

TEST_CASE("where weights are kept in fewer bits, and where not", "[engine][model][gguf][quant]") {
    const auto count = [](const LlamaModel& model, Quant quant) {
        int found = 0;
        for (const auto& [name, place] : model.places()) found += place.weight->part(place.part).quant == quant ? 1 : 0;
        return found;
    };
    const auto folder = golden::model_folder("llama3_rope");
    // A folder's weights stay in full unless asked.
    CHECK_FALSE(opened(folder, served_as("auto"))->is_quantised());
    CHECK_FALSE(opened(gguf("llama3_rope/f32.gguf"), served_as("auto"))->is_quantised());
    CHECK_FALSE(opened(gguf("llama3_rope/q8_0.gguf"), served_as("bf16"))->is_quantised());
    // libtorch's path decodes them, and refuses what it cannot hold.
    ModelOptions reference = served_as("auto");
    reference.torch_kernels = true;
    CHECK_FALSE(opened(gguf("llama3_rope/q8_0.gguf"), reference)->is_quantised());
    for (const char* word : {"int8", "int4"}) {
        reference.bits = served_as(word).bits;
        const auto refused = load_model(folder, reference);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().param == "model.dtype");
    }

    const auto eight = opened(folder, served_as("int8"));
    const auto four = opened(folder, served_as("int4"));
    CHECK(count(*eight, Quant::int4_min) == 0);
    CHECK(count(*four, Quant::int8) == (four->shape().tied_embeddings ? 1 : 2));
    CHECK(count(*eight, Quant::int8) == count(*four, Quant::int8) + count(*four, Quant::int4_min));
    // A tied embedding is gathered from and multiplied with, and lies there once.
    const auto tied = opened(golden::model_folder("llama_gqa_tied"), served_as("int8"));
    REQUIRE(tied->shape().tied_embeddings);
    CHECK(count(*tied, Quant::int8) == 7 * tied->shape().layer_count() + 1);
    CHECK_FALSE(weight_form("f8"));
}
