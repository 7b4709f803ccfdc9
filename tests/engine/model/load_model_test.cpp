#include "engine/model/model.hpp"

#include "engine/model/test_model_folder.hpp"
#include "engine/weights/base_audit.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::TempFolder;
using Json = nlohmann::json;

namespace {

const std::string kModel = "llama_gqa_tied";

std::string refusal(const TempFolder& folder) {
    const auto model = load_model(folder.path(), {});
    if (model) return "accepted";
    CHECK_THAT(model.error().message, !Catch::Contains(folder.path().string()));
    return model.error().message;
}

std::string combined(const Model& model) {
    std::vector<std::string> hashes;
    const auto audit = model.audit();
    for (std::size_t i = 0; i < audit->tensors(); ++i) hashes.push_back(audit->expected(i));
    return BaseAudit::combine(hashes);
}

/// Writes the tensors as two shards and their index.
Json write_shards(const TempFolder& folder, const std::map<std::string, testing::RawTensor>& tensors) {
    std::map<std::string, testing::RawTensor> shards[2];
    Json map = Json::object();
    int i = 0;
    for (const auto& [name, tensor] : tensors) {
        const int shard = i++ % 2;
        shards[shard].emplace(name, tensor);
        map[name] = "part-" + std::to_string(shard) + ".safetensors";
    }
    for (int s = 0; s < 2; ++s)
        testing::write_safetensors(folder.path() / ("part-" + std::to_string(s) + ".safetensors"), shards[s]);
    return Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
}

}  // namespace

TEST_CASE("the checkpoint ids of the golden models are the known ones, in any serving form", "[engine][model][load]") {
    const std::map<std::string, std::string> expected{
        {"llama3_rope", "e534b445795b5f48d1c967c74b3d274f29f1ff0455b7230ba9bf68f2b665aa28"},
        {"llama_gqa_tied", "b5acdbe7d9afc638383bd3f5d56c792a478617c07a001c05418e81a178f99376"},
        {"mistral_swa", "b31bc07b603fdc811129949325f64ec2a54f89392bd4d188c54bacbdfd1778aa"},
        {"qwen2_bias", "dd03ddea53d97a389de3281778066d27c6281660bc8c01b0cf69a232fdc959f3"},
        {"qwen3_qknorm", "58b6c15889b09eddbac0de8ccbf7b63b67289e0c29c5f7977385c0b198e31321"},
    };
    for (const auto& [name, id] : expected) {
        CAPTURE(name);
        for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16}) {
            const auto model = load_model(golden::model_folder(name), {torch::kCPU, dtype, false});
            REQUIRE(model);
            CHECK((*model)->shape().checkpoint == "sha256:" + id);
            CHECK((*model)->audit()->checkpoint() == "sha256:" + id);
        }
    }
}

TEST_CASE("every source tensor is audited under its own name, with the hash it was loaded with",
          "[engine][model][load][audit]") {
    const auto model = load_model(golden::model_folder("qwen2_bias"), {});
    REQUIRE(model);
    const auto audit = (*model)->audit();
    const auto source = testing::golden_tensors("qwen2_bias");
    REQUIRE(audit->tensors() == source.size());
    std::uint64_t bytes = 0;
    std::size_t i = 0;
    for (const auto& [name, tensor] : source) {
        CHECK(audit->name(i) == name);
        CHECK(audit->hash_some(i, ~0ull).hash == audit->expected(i));
        bytes += audit->bytes(i++);
    }
    CHECK((*model)->weight_bytes() == bytes);
}

TEST_CASE("a sharded model is the same model", "[engine][model][load]") {
    const auto single = load_model(golden::model_folder(kModel), {});
    REQUIRE(single);
    const TempFolder folder;
    folder.write_config(kModel);
    folder.write("model.safetensors.index.json", write_shards(folder, testing::golden_tensors(kModel)).dump());
    const auto sharded = load_model(folder.path(), {});
    REQUIRE(sharded);
    CHECK((*sharded)->shape().checkpoint == (*single)->shape().checkpoint);
    CHECK(combined(**sharded) == combined(**single));
}

TEST_CASE("an index that does not fit its shards is refused by name", "[engine][model][load]") {
    const TempFolder folder;
    folder.write_config(kModel);
    const Json index = write_shards(folder, testing::golden_tensors(kModel));
    const auto with = [&](const char* tensor, const Json& file) {
        Json changed = index;
        if (file.is_null()) {
            changed["weight_map"].erase(tensor);
        } else {
            changed["weight_map"][tensor] = file;
        }
        folder.write("model.safetensors.index.json", changed.dump());
        return refusal(folder);
    };
    CHECK_THAT(with("model.norm.weight", nullptr), Catch::Contains("model.norm.weight"));
    CHECK_THAT(with("model.extra.weight", "part-0.safetensors"), Catch::Contains("model.extra.weight"));
    CHECK_THAT(with("model.norm.weight", "part-9.safetensors"), Catch::Contains("part-9.safetensors"));
    CHECK_THAT(with("model.norm.weight", "../part-0.safetensors"), Catch::Contains("plain file name"));
    CHECK_THAT(with("model.norm.weight", 3), Catch::Contains("model.norm.weight"));
    folder.write("model.safetensors.index.json", "{}");
    CHECK_THAT(refusal(folder), Catch::Contains("weight_map"));
    std::filesystem::remove(folder.path() / "model.safetensors.index.json");
    CHECK_THAT(refusal(folder), Catch::Contains("neither"));
}

TEST_CASE("missing, extra and misshapen tensors are named with the shapes", "[engine][model][load]") {
    const TempFolder folder;
    folder.write_config(kModel);
    const auto with = [&](const std::string& name, const testing::RawTensor* tensor) {
        auto tensors = testing::golden_tensors(kModel);
        tensors.erase(name);
        if (tensor != nullptr) tensors.emplace(name, *tensor);
        testing::write_safetensors(folder.path() / "model.safetensors", tensors);
        return refusal(folder);
    };
    const std::string k_proj = "model.layers.1.self_attn.k_proj.weight";
    CHECK_THAT(with(k_proj, nullptr), Catch::Contains(k_proj) && Catch::Contains("[32, 64]"));
    const auto wide = testing::f32_tensor({64, 64}, std::vector<float>(4096));
    CHECK_THAT(with(k_proj, &wide),
               Catch::Contains(k_proj) && Catch::Contains("[64, 64]") && Catch::Contains("[32, 64]"));
    const auto bias = testing::f32_tensor({64}, std::vector<float>(64));
    const std::string q_bias = "model.layers.0.self_attn.q_proj.bias";
    CHECK_THAT(with(q_bias, &bias), Catch::Contains(q_bias) && Catch::Contains("[64]"));
    const testing::RawTensor integers{"I32", {32, 64}, std::string(32 * 64 * 4, '\0')};
    CHECK_THAT(with(k_proj, &integers), Catch::Contains(k_proj) && Catch::Contains("I32"));
    CHECK(with("model.layers.0.self_attn.rotary_emb.inv_freq", &bias) == "accepted");
}

TEST_CASE("a tied checkpoint may hold its head again, but not another one", "[engine][model][load]") {
    const TempFolder folder;
    folder.write_config(kModel);
    auto tensors = testing::golden_tensors(kModel);
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    testing::write_safetensors(folder.path() / "model.safetensors", tensors);
    CHECK(refusal(folder) == "accepted");
    tensors["lm_head.weight"].bytes[77] ^= 1;
    testing::write_safetensors(folder.path() / "model.safetensors", tensors);
    CHECK_THAT(refusal(folder), Catch::Contains("lm_head.weight") && Catch::Contains("tie_word_embeddings"));
}

TEST_CASE("bfloat16 files serve as float32 and bfloat16 with equal values", "[engine][model][load]") {
    const TempFolder folder;
    folder.write_config(kModel);
    std::map<std::string, testing::RawTensor> stored;
    for (const auto& [name, tensor] : golden::read_tensors(golden::model_folder(kModel) / "model.safetensors"))
        stored.emplace(name, testing::bf16_tensor(tensor.shape, tensor.values));
    testing::write_safetensors(folder.path() / "model.safetensors", stored);
    torch::Tensor logits[2];
    int i = 0;
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16}) {
        const auto model = load_model(folder.path(), {torch::kCPU, dtype, false});
        REQUIRE(model);
        Batch batch;
        batch.tokens = {5, 9, 200};
        batch.positions = {0, 1, 2};
        batch.sequences = {{0, 3, 0, 0, 1}};
        batch.blocks = {BlockId{0}};
        batch.segment_rows = {0, 3};
        batch.segment_offsets = {0, 0};
        const ModuleSlots slots((*model)->shape(), {1 << 16, torch::kFloat32, 64}, torch::kCPU);
        const c10::InferenceMode guard;
        logits[i++] = (*model)->logits((*model)->forward_plain(batch, slots), batch, slots);
    }
    // On our kernels bfloat16 weights are widened, so the arithmetic is the same to the last bit.
    CHECK(torch::equal(logits[0], logits[1]));
}

TEST_CASE("a broken config stops the load before any weight is read", "[engine][model][load]") {
    const TempFolder folder;
    folder.write_config(kModel, {{"hidden_act", "gelu"}});
    CHECK_THAT(refusal(folder), Catch::Contains("hidden_act"));
    folder.write_config(kModel, {{"num_hidden_layers", 4}});
    testing::write_safetensors(folder.path() / "model.safetensors", testing::golden_tensors(kModel));
    CHECK_THAT(refusal(folder), Catch::Contains("model.layers.3."));
}
