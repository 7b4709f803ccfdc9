// GGUF base models against the Hugging Face folders of the same models (make_gguf_models.py wrote the files).

#include "engine/files/gguf.hpp"
#include "engine/files/hash.hpp"
#include "engine/model/gguf_maker.hpp"
#include "engine/model/gguf_names.hpp"
#include "engine/model/llama_model.hpp"
#include "engine/model/model.hpp"
#include "engine/model/test_model_folder.hpp"
#include "engine/weights/base_audit.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::GgufMaker;
using attune::testing::RawTensor;
using attune::testing::TempFolder;
using Json = nlohmann::json;

namespace {

std::filesystem::path gguf(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_models" / name;
}
const Json& index() {
    static const Json kIndex = golden::read_json(gguf("index.json"));
    return kIndex;
}

/// "qwen2_bias/q8_0.gguf" and so on; those of float32 have "/f32" in their names.
std::vector<std::string> files(bool quantised) {
    std::vector<std::string> out;
    for (const auto& [name, entry] : index().items()) {
        if ((name.find("/f32") == std::string::npos) == quantised) out.push_back(name);
    }
    return out;
}
std::string model_of(const std::string& file) { return file.substr(0, file.find('/')); }

std::unique_ptr<Model> open_model(const std::filesystem::path& path, torch::Dtype dtype = torch::kFloat32,
                                  bool torch_kernels = false) {
    auto loaded = load_model(path, {torch::kCPU, dtype, torch_kernels});
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *std::move(loaded);
}

std::string refusal(const std::filesystem::path& path) {
    const auto model = load_model(path, {});
    if (model) return "accepted";
    CHECK_THAT(model.error().message, !Catch::Contains(path.parent_path().string()));
    return model.error().message;
}

/// Logits of a whole prompt, [tokens, vocab].
torch::Tensor logits(const Model& model, const std::vector<TokenId>& tokens) {
    Batch batch;
    batch.tokens = tokens;
    const int rows = static_cast<int>(tokens.size());
    for (int row = 0; row < rows; ++row) {
        batch.positions.push_back(row);
        batch.logit_rows.push_back(row);
    }
    batch.sequences = {{0, rows, 0, 0, 1}};
    batch.blocks = {BlockId{0}};
    batch.segment_rows = {0, rows};
    batch.segment_offsets = {0, 0};
    const ModuleSlots slots(model.shape(), {1 << 16, torch::kFloat32, 64}, torch::kCPU);
    const c10::InferenceMode guard;
    return model.logits(model.forward_plain(batch, slots), batch, slots);
}

/// The hash of every resident tensor, by our names.
std::map<std::string, std::string> hashes(const Model& model) {
    std::map<std::string, std::string> out;
    const auto audit = model.audit();
    for (std::size_t i = 0; i < audit->tensors(); ++i) out.emplace(audit->name(i), audit->expected(i));
    return out;
}

/// The values of a GGUF file as a Hugging Face folder has them. That they are gguf-py's is checked by their hashes.
std::map<std::string, RawTensor> decoded_tensors(const std::string& name) {
    const auto header = read_gguf_header(gguf(name));
    const auto file = ReadOnlyFile::open(gguf(name));
    if (!header || !file) throw std::runtime_error(name + " cannot be read");
    std::map<std::string, RawTensor> out;
    const Json config = golden::read_json(golden::model_folder(model_of(name)) / "config.json");
    const std::string type = config.at("model_type");
    for (const auto& [ours, hash] : index().at(name).at("values").items()) {
        const StoredTensor* stored = header->tensor(gguf_tensor_name(ours));
        REQUIRE(stored != nullptr);
        std::vector<std::byte> bytes(stored->bytes);
        REQUIRE(file->read(stored->begin, bytes));
        const std::int64_t rows = stored->shape.front();
        const std::int64_t columns = stored->shape.size() == 1 ? 1 : stored->shape.back();
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        REQUIRE(convert_to_f32(stored->type, bytes.data(), values.data(), values.size()));
        if (is_stored_in_pairs(ours, type)) {
            const std::int64_t half = config.at("head_dim").get<std::int64_t>() / 2;
            std::vector<float> ordered;
            for (std::int64_t row = 0; row < rows; ++row) {
                const std::int64_t head = row / (2 * half);
                const std::int64_t source = head * 2 * half + row % half * 2 + row / half % 2;
                ordered.insert(ordered.end(), values.begin() + source * columns,
                               values.begin() + (source + 1) * columns);
            }
            values = ordered;
        }
        RawTensor raw = testing::f32_tensor(stored->shape, values);
        Sha256 sha;
        sha.update(raw.bytes);
        REQUIRE(sha.hex() == hash.get<std::string>());
        out.emplace(ours, std::move(raw));
    }
    return out;
}

/// A small llama with biases everywhere, as a folder and as a file.
struct BiasedLlama {
    TempFolder folder;
    GgufMaker file;

    BiasedLlama() {
        const std::string model = "llama_gqa_tied";
        folder.write_config(model, {{"attention_bias", true}, {"mlp_bias", true}});
        auto tensors = testing::golden_tensors(model);
        for (int layer = 0; layer < 3; ++layer) {
            const std::string prefix = "model.layers." + std::to_string(layer) + ".";
            for (const auto& [name, size] : std::vector<std::pair<std::string, int>>{{"self_attn.q_proj", 64},
                                                                                     {"self_attn.k_proj", 32},
                                                                                     {"self_attn.v_proj", 32},
                                                                                     {"self_attn.o_proj", 64},
                                                                                     {"mlp.gate_proj", 160},
                                                                                     {"mlp.up_proj", 160},
                                                                                     {"mlp.down_proj", 64}}) {
                std::vector<float> values;
                for (int i = 0; i < size; ++i) values.push_back(0.01F * static_cast<float>(i + layer) - 0.3F);
                tensors.emplace(prefix + name + ".bias", testing::f32_tensor({size}, values));
            }
        }
        testing::write_safetensors(folder.path() / "model.safetensors", tensors);
        describe(file);
        for (const auto& [name, tensor] : tensors)
            file.tensors.push_back({gguf_tensor_name(name), tensor.shape, GgufMaker::kF32, in_pairs(name, tensor)});
    }

    static void describe(GgufMaker& file) {
        file.add("general.architecture", std::string("llama"));
        const std::pair<const char*, std::uint32_t> counts[] = {
            {"context_length", 512U},      {"embedding_length", 64U},    {"block_count", 3U},
            {"feed_forward_length", 160U}, {"attention.head_count", 4U}, {"attention.head_count_kv", 2U}};
        for (const auto& [key, value] : counts) file.add(std::string("llama.") + key, value);
        file.add("llama.attention.layer_norm_rms_epsilon", 1e-6F);
    }

    /// q and k as llama.cpp's converter writes them: of each head of 16, rows 0, 8, 1, 9, …
    static std::string in_pairs(const std::string& name, const RawTensor& tensor) {
        if (!is_stored_in_pairs(name, "llama")) return tensor.bytes;
        const auto rows = static_cast<std::size_t>(tensor.shape.front());
        const std::size_t bytes = tensor.bytes.size() / rows;
        std::string out;
        for (std::size_t row = 0; row < rows; ++row)
            out += tensor.bytes.substr((row / 16 * 16 + row % 2 * 8 + row % 16 / 2) * bytes, bytes);
        return out;
    }
    GgufMaker::Tensor& tensor(const std::string& name) {
        for (GgufMaker::Tensor& tensor : file.tensors) {
            if (tensor.name == name) return tensor;
        }
        throw std::runtime_error("no tensor " + name);
    }
};

}  // namespace

TEST_CASE("a float32 GGUF file holds the folder's very weights and gives the reference's logits",
          "[engine][model][gguf][golden]") {
    const std::string name = GENERATE(from_range(files(false)));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    CAPTURE(name, dtype);
    const auto file = open_model(gguf(name), dtype);
    const auto folder = open_model(golden::model_folder(model_of(name)), dtype);
    CHECK(hashes(*file) == hashes(*folder));
    CHECK(file->shape().model_type == folder->shape().model_type);
    CHECK(file->shape().max_context == folder->shape().max_context);
    CHECK(file->weight_bytes() == folder->weight_bytes());
    for (const golden::Prompt& prompt : golden::read_case(model_of(name), "base").prompts) {
        const torch::Tensor answer = logits(*file, prompt.tokens);
        if (dtype == torch::kFloat32)
            CHECK((answer - torch::tensor(prompt.logits.values).view(prompt.logits.shape)).abs().max().item<float>() <=
                  golden::kTolerance);
        // The factors of llama3's rotation are rounded once more in the file: near, not equal.
        const torch::Tensor expected = logits(*folder, prompt.tokens);
        if (model_of(name) == "llama3_rope") {
            CHECK((answer - expected).abs().max().item<float>() < 1e-4F);
        } else {
            CHECK(torch::equal(answer, expected));
        }
    }
}

TEST_CASE("a quantised GGUF file is the model of its decoded values", "[engine][model][gguf]") {
    const std::string name = GENERATE(from_range(files(true)));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    const bool torch_kernels = GENERATE(false, true);
    CAPTURE(name, dtype, torch_kernels);
    const TempFolder temporary;
    temporary.write_config(model_of(name));
    testing::write_safetensors(temporary.path() / "model.safetensors", decoded_tensors(name));
    const auto file = open_model(gguf(name), dtype, torch_kernels);
    const auto folder = open_model(temporary.path(), dtype, torch_kernels);
    CHECK(hashes(*file) == hashes(*folder));
    const std::vector<TokenId> tokens{5, 9, 200, 17, 17, 31, 2, 8, 250, 11};
    const torch::Tensor difference = (logits(*file, tokens) - logits(*folder, tokens)).abs().max();
    CHECK(difference.item<float>() <= (model_of(name) == "llama3_rope" ? 1e-4F : 0.0F));
}

TEST_CASE("a GGUF file's checkpoint id is made of its own names, types, shapes and bytes", "[engine][model][gguf]") {
    for (const auto& [name, entry] : index().items()) {
        CAPTURE(name);
        CHECK(open_model(gguf(name), torch::kBFloat16)->shape().checkpoint == entry.at("checkpoint"));
    }
}

TEST_CASE("every tensor of a GGUF file heals from the file", "[engine][model][gguf][audit]") {
    const std::string name = GENERATE(std::string("llama_gqa_tied/mixed.gguf"), std::string("qwen2_bias/q8_0.gguf"));
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    CAPTURE(name, dtype);
    const auto model = open_model(gguf(name), dtype);
    for (const auto& weight : dynamic_cast<const LlamaModel&>(*model).weights()) {
        for (std::size_t part = 0; part < weight->parts(); ++part) {
            CAPTURE(weight->part(part).name);
            weight->overwrite_rows(part, 0, torch::ones({1, weight->columns()}) * 3);
            CHECK(weight->hash(part) != weight->expected(part));
            REQUIRE(weight->reload(part));
            CHECK(weight->hash(part) == weight->expected(part));
        }
    }
}

TEST_CASE("biases of a GGUF llama are used, those of q and k in their own order", "[engine][model][gguf]") {
    BiasedLlama llama;
    const auto path = llama.folder.path() / "biased.gguf";
    llama.file.write(path);
    const auto file = open_model(path);
    const auto folder = open_model(llama.folder.path());
    CHECK(hashes(*file) == hashes(*folder));
    const std::vector<TokenId> tokens{5, 9, 200, 17};
    CHECK(torch::equal(logits(*file, tokens), logits(*folder, tokens)));

    llama.tensor("blk.1.attn_k.bias").bytes[3] ^= 0x40;
    llama.file.write(path);
    CHECK(hashes(*open_model(path)) != hashes(*folder));
}

TEST_CASE("heads whose rows fill no whole panels keep their order in chunks", "[engine][model][gguf]") {
    // 30 heads of 6 over 8192 columns: chunks of whole heads and whole panels are shorter than the tensor.
    constexpr std::int64_t kHead = 6;
    constexpr std::int64_t kRows = 30 * kHead;
    constexpr std::int64_t kColumns = 8192;
    const torch::Tensor rows = torch::arange(kRows, torch::kFloat32).unsqueeze(1).expand({kRows, kColumns});
    const torch::Tensor paired = rows.view({30, 2, kHead / 2, kColumns}).transpose(1, 2).reshape({kRows, kColumns});
    const TempFolder folder;
    const auto* values = paired.const_data_ptr<float>();
    testing::write_safetensors(
        folder.path() / "model.safetensors",
        {{"q", testing::f32_tensor({kRows, kColumns}, std::vector<float>(values, values + paired.numel()))}});
    auto files = open_tensor_files(folder.path());
    REQUIRE(files);
    SourceTensor source = files->at("q");
    source.paired_rows = kHead;
    Weight weight({{"q", kRows}}, kColumns, {WeightLayout::panels, torch::kFloat32, torch::kCPU});
    REQUIRE(weight.load(0, source, nullptr));
    CHECK(torch::equal(weight.read_rows(0, 0, kRows), rows));
    REQUIRE(weight.reload(0));
}

TEST_CASE("missing, extra, misshapen and unreadable tensors of a GGUF file are named", "[engine][model][gguf]") {
    BiasedLlama llama;
    const auto path = llama.folder.path() / "broken.gguf";
    const std::string name = "blk.1.attn_k.weight";
    const auto broken = [&](auto change) {
        GgufMaker file = llama.file;
        for (auto tensor = file.tensors.begin(); tensor != file.tensors.end(); ++tensor) {
            if (tensor->name != name) continue;
            change(file, *tensor);
            break;
        }
        file.write(path);
        return refusal(path);
    };
    CHECK(broken([](auto&, auto&) {}) == "accepted");
    CHECK_THAT(broken([](GgufMaker&, GgufMaker::Tensor& tensor) { tensor.name = "blk.7.attn_k.weight"; }),
               Catch::Contains(name) && Catch::Contains("missing") && Catch::Contains("[32, 64]"));
    CHECK_THAT(broken([](GgufMaker& file, GgufMaker::Tensor&) {
                   file.tensors.push_back({"blk.1.ffn_gate_exps.weight", {4}, GgufMaker::kF32, std::string(16, '\0')});
               }),
               Catch::Contains("blk.1.ffn_gate_exps.weight") && Catch::Contains("[4]"));
    CHECK_THAT(broken([](GgufMaker&, GgufMaker::Tensor& tensor) {
                   tensor.shape = {64, 32};
               }),
               Catch::Contains(name) && Catch::Contains("[64, 32]") && Catch::Contains("[32, 64]"));
    CHECK_THAT(broken([](GgufMaker&, GgufMaker::Tensor& tensor) {
                   tensor.type = GgufMaker::kIq4Nl;
                   tensor.bytes.resize(32 * 64 / 32 * 18);
               }),
               Catch::Contains(name) && Catch::Contains("IQ4_NL"));
}

TEST_CASE("a GGUF file cut after the load is an error of reload, not a crash", "[engine][model][gguf][audit]") {
    BiasedLlama llama;
    const auto path = llama.folder.path() / "cut.gguf";
    llama.file.write(path);
    const auto model = open_model(path);
    std::filesystem::resize_file(path, 4096);
    for (const auto& weight : dynamic_cast<const LlamaModel&>(*model).weights()) {
        if (weight->part(0).name != "model.norm.weight") continue;
        CHECK_FALSE(weight->reload(0));
        CHECK(weight->hash(0) == weight->expected(0));
    }
}

TEST_CASE("a model path that is no model says why", "[engine][model][gguf]") {
    const TempFolder folder;
    CHECK_THAT(refusal(folder.path() / "absent.gguf"), Catch::Contains("absent.gguf"));
    folder.write("text.gguf", "not a model");
    CHECK_THAT(refusal(folder.path() / "text.gguf"), Catch::Contains("text.gguf"));
    folder.write("config.json", "{}");
    CHECK_THAT(refusal(folder.path() / "config.json"), Catch::Contains("config.json"));
}
