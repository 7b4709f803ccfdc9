#include "engine/model/gguf_config.hpp"
#include "engine/model/gguf_names.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

using namespace attune;

namespace {

GgufValue number(std::uint64_t value) { return {GgufType::u32, value}; }
GgufValue real(double value) { return {GgufType::f32, value}; }
GgufValue text(const std::string& value) { return {GgufType::string, value}; }

StoredTensor tensor(const std::string& name, std::vector<std::int64_t> shape) {
    std::uint64_t bytes = 4;
    for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
    return {name, "F32", StoredType::f32, std::move(shape), 0, bytes};
}

/// Four heads of 16 over 64, two of them for keys, three layers.
GgufHeader header(const std::string& arch = "llama") {
    GgufHeader out;
    out.file_name = "tiny.gguf";
    out.version = 3;
    out.metadata = {{"general.architecture", text(arch)},
                    {"general.name", text("anything")},
                    {arch + ".context_length", number(512)},
                    {arch + ".embedding_length", number(64)},
                    {arch + ".block_count", number(3)},
                    {arch + ".feed_forward_length", number(160)},
                    {arch + ".attention.head_count", number(4)},
                    {arch + ".attention.head_count_kv", number(2)},
                    {arch + ".attention.layer_norm_rms_epsilon", real(1e-5F)},
                    {arch + ".rope.freq_base", real(50000.0)}};
    out.tensors = {tensor("blk.0.attn_k.weight", {32, 64}), tensor("blk.0.attn_q.weight", {64, 64}),
                   tensor("blk.0.ffn_up.weight", {160, 64}), tensor("token_embd.weight", {320, 64})};
    return out;
}

GgufHeader with(GgufHeader header, const std::string& key, GgufValue value) {
    const auto found = std::find_if(header.metadata.begin(), header.metadata.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (found != header.metadata.end()) {
        found->second = std::move(value);
    } else {
        header.metadata.emplace_back(key, std::move(value));
    }
    return header;
}

GgufHeader without(GgufHeader header, const std::string& key) {
    std::erase_if(header.metadata, [&](const auto& entry) { return entry.first == key; });
    return header;
}

GgufHeader with_tensor(GgufHeader header, StoredTensor tensor) {
    header.tensors.push_back(std::move(tensor));
    std::sort(header.tensors.begin(), header.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return header;
}

std::string refusal(const GgufHeader& header) {
    const auto config = parse_gguf_config(header);
    return config ? "accepted" : config.error().message;
}

ModelConfig accepted(const GgufHeader& header) {
    const auto config = parse_gguf_config(header);
    INFO((config ? "" : config.error().message));
    REQUIRE(config);
    return *config;
}

}  // namespace

TEST_CASE("a GGUF header says what a config would", "[engine][model][gguf]") {
    const ModelConfig model = accepted(header());
    CHECK(model.shape.model_type == "llama");
    CHECK(model.shape.hidden_size == 64);
    CHECK(model.shape.intermediate_size == 160);
    CHECK(model.shape.heads == 4);
    CHECK(model.shape.kv_heads == 2);
    CHECK(model.shape.head_dim == 16);
    CHECK(model.shape.vocab_size == 320);
    CHECK(model.shape.max_context == 512);
    CHECK(model.shape.layer_count() == 3);
    CHECK(model.shape.tied_embeddings);
    CHECK(model.norm_eps == 1e-5F);
    CHECK(model.rope.theta == 50000.0);
    CHECK(model.rope.kind == RopeKind::standard);
    CHECK_FALSE(model.qkv_bias);
    CHECK_FALSE(model.qk_norm);
    GgufHeader all_heads = without(header(), "llama.attention.head_count_kv");
    all_heads.tensors[0].shape = {64, 64};
    CHECK(accepted(all_heads).shape.kv_heads == 4);
    CHECK(accepted(without(header(), "llama.rope.freq_base")).rope.theta == 10000.0);
}

TEST_CASE("a GGUF file's tensors say whether the head is tied and which biases there are", "[engine][model][gguf]") {
    CHECK_FALSE(accepted(with_tensor(header(), tensor("output.weight", {320, 64}))).shape.tied_embeddings);
    const ModelConfig qwen2 = accepted(with_tensor(header("qwen2"), tensor("blk.0.attn_q.bias", {64})));
    CHECK(qwen2.shape.model_type == "qwen2");
    CHECK(qwen2.qkv_bias);
    CHECK_FALSE(qwen2.o_bias);
    CHECK(accepted(with_tensor(header(), tensor("blk.0.attn_output.bias", {64}))).o_bias);
    CHECK(accepted(with_tensor(header(), tensor("blk.0.ffn_up.bias", {160}))).mlp_bias);
    CHECK(accepted(header("qwen3")).qk_norm);
}

TEST_CASE("head sizes of a GGUF header are its own where they are given", "[engine][model][gguf]") {
    GgufHeader wide = with(header("qwen3"), "qwen3.attention.key_length", number(32));
    wide.tensors[0].shape = {64, 64};
    wide.tensors[1].shape = {128, 64};
    CHECK_THAT(refusal(with(wide, "qwen3.attention.value_length", number(64))),
               Catch::Contains("qwen3.attention.value_length") && Catch::Contains("64"));
    wide = with(wide, "qwen3.attention.value_length", number(32));
    CHECK(accepted(wide).shape.head_dim == 32);
    CHECK(accepted(with(wide, "qwen3.rope.dimension_count", number(32))).shape.head_dim == 32);
    // Half of the head rotated would be another model.
    CHECK_THAT(refusal(with(wide, "qwen3.rope.dimension_count", number(16))),
               Catch::Contains("qwen3.rope.dimension_count"));
    CHECK_THAT(refusal(with(header(), "llama.attention.key_length", number(15))),
               Catch::Contains("llama.attention.key_length"));
}

TEST_CASE("a sliding window makes a llama file a mistral one and is refused elsewhere", "[engine][model][gguf]") {
    const ModelConfig mistral = accepted(with(header(), "llama.attention.sliding_window", number(8)));
    CHECK(mistral.shape.model_type == "mistral");
    for (const LayerShape& layer : mistral.shape.layers) CHECK(layer.window == 8);
    // Nothing is ever outside of such a window.
    CHECK(accepted(with(header(), "llama.attention.sliding_window", number(512))).shape.model_type == "llama");
    CHECK(accepted(with(header("qwen2"), "qwen2.attention.sliding_window", number(0))).shape.layers[0].window == 0);
    CHECK_THAT(refusal(with(header("qwen2"), "qwen2.attention.sliding_window", number(8))),
               Catch::Contains("qwen2.attention.sliding_window"));
}

TEST_CASE("rope scaling of a GGUF header has llama.cpp's meaning", "[engine][model][gguf]") {
    const auto scaled = with(header(), "llama.rope.scaling.factor", real(2.5));
    // A factor without a type is linear, and so is the old key; "none" wins over a factor.
    for (const GgufHeader& linear : {scaled, with(scaled, "llama.rope.scaling.type", text("linear")),
                                     with(header(), "llama.rope.scale_linear", real(2.5))}) {
        const RopeConfig rope = accepted(linear).rope;
        CHECK(rope.kind == RopeKind::linear);
        CHECK(rope.factor == 2.5);
    }
    CHECK(accepted(with(scaled, "llama.rope.scaling.type", text("none"))).rope.kind == RopeKind::standard);
    CHECK(accepted(with(header(), "llama.rope.scaling.factor", real(0))).rope.kind == RopeKind::standard);
    CHECK(accepted(with(header(), "llama.rope.scaling.attn_factor", real(1))).rope.kind == RopeKind::standard);
    CHECK_THAT(refusal(with(header(), "llama.rope.scaling.attn_factor", real(1.2))),
               Catch::Contains("llama.rope.scaling.attn_factor"));

    auto yarn = with(header("qwen2"), "qwen2.rope.scaling.type", text("yarn"));
    yarn = with(yarn, "qwen2.rope.scaling.factor", real(4));
    yarn = with(yarn, "qwen2.rope.scaling.original_context_length", number(512));
    const ModelConfig model = accepted(yarn);
    CHECK(model.rope.kind == RopeKind::yarn);
    CHECK(model.rope.factor == 4);
    CHECK(model.rope.original_context == 512);
    CHECK(model.rope.attention_factor == Approx(0.1 * std::log(4.0) + 1));
    CHECK(model.rope.beta_fast == 32);
    CHECK(model.shape.max_context == 2048);
    CHECK_THAT(refusal(with(yarn, "qwen2.rope.scaling.type", text("longrope"))), Catch::Contains("longrope"));
    CHECK_THAT(refusal(with(yarn, "qwen2.rope.scaling.yarn_log_multiplier", real(0.1))),
               Catch::Contains("yarn_log_multiplier"));
    CHECK_THAT(refusal(with(yarn, "qwen2.rope.scaling.yarn_beta_fast", real(0))), Catch::Contains("yarn_beta_fast"));
    CHECK_THAT(refusal(with(yarn, "qwen2.rope.scaling.factor", real(NAN))), Catch::Contains("scaling.factor"));
}

TEST_CASE("rope factors must fit the head", "[engine][model][gguf]") {
    CHECK(refusal(with_tensor(header(), tensor("rope_freqs.weight", {8}))) == "accepted");
    CHECK_THAT(refusal(with_tensor(header(), tensor("rope_freqs.weight", {16}))),
               Catch::Contains("rope_freqs.weight") && Catch::Contains("[8]"));
}

TEST_CASE("what would change the result is refused by its key", "[engine][model][gguf]") {
    const auto refuses = [](const char* key, const GgufValue& value) {
        const std::string message = refusal(with(header(), key, value));
        CHECK_THAT(message, Catch::Contains(std::string("\"") + key + "\""));
        CHECK_THAT(message, Catch::Contains("tiny.gguf"));
    };
    refuses("llama.expert_count", number(8));
    refuses("llama.attention.clamp_kqv", real(8));
    refuses("llama.attention.causal", {GgufType::boolean, false});
    refuses("llama.logit_scale", real(0.5));
    refuses("llama.something_new", number(0));
    refuses("llama.rope.dimension_sections", {GgufType::array, GgufArray{GgufType::i32, {1, 2}, {}, {}, {}}});
    refuses("general.type", text("adapter"));
    refuses("split.count", number(3));
    refuses("general.architecture", text("gemma3"));
    refuses("general.architecture", number(5));

    CHECK(refusal(with(header(), "llama.expert_count", number(0))) == "accepted");
    CHECK(refusal(with(header(), "llama.logit_scale", real(1))) == "accepted");
    CHECK(refusal(with(header(), "split.count", number(1))) == "accepted");
    CHECK(refusal(with(header(), "general.type", text("model"))) == "accepted");
    // Nobody reads another architecture's keys.
    CHECK(refusal(with(header(), "gemma3.logit_scale", real(0.5))) == "accepted");
}

TEST_CASE("missing and malformed GGUF keys are named", "[engine][model][gguf]") {
    for (const char* key :
         {"general.architecture", "llama.context_length", "llama.embedding_length", "llama.block_count",
          "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
        CHECK_THAT(refusal(without(header(), key)), Catch::Contains(std::string("\"") + key + "\" is missing"));
    }
    for (const char* key : {"llama.context_length", "llama.block_count", "llama.attention.head_count_kv",
                            "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
        CHECK_THAT(refusal(with(header(), key, text("many"))), Catch::Contains(key));
    }
    CHECK_THAT(refusal(with(header(), "llama.block_count", number(0))), Catch::Contains("llama.block_count"));
    CHECK_THAT(refusal(with(header(), "llama.block_count", number(5000))), Catch::Contains("llama.block_count"));
    CHECK_THAT(refusal(with(header(), "llama.embedding_length", number(1ull << 31))),
               Catch::Contains("llama.embedding_length"));
    CHECK_THAT(refusal(with(header(), "llama.attention.head_count_kv", number(3))),
               Catch::Contains("llama.attention.head_count_kv"));
    CHECK_THAT(refusal(with(header(), "llama.vocab_size", number(321))), Catch::Contains("llama.vocab_size"));
    GgufHeader empty = header();
    empty.tensors.clear();
    CHECK_THAT(refusal(empty), Catch::Contains("token_embd.weight"));
}

TEST_CASE("a GGUF header asks for no more than its tensors hold", "[engine][model][gguf]") {
    const std::pair<const char*, const char*> claims[] = {{"llama.embedding_length", "token_embd.weight"},
                                                          {"llama.feed_forward_length", "blk.0.ffn_up.weight"},
                                                          {"llama.attention.key_length", "blk.0.attn_q.weight"}};
    for (const auto& [key, name] : claims) {
        auto claimed = with(header(), key, number(1u << 30));
        claimed = with(claimed, "llama.attention.value_length",
                       number(std::string_view(key).ends_with("key_length") ? 1u << 30 : 16));
        claimed = with(claimed, "llama.attention.key_length",
                       number(std::string_view(key).ends_with("key_length") ? 1u << 30 : 16));
        CHECK_THAT(refusal(claimed), Catch::Contains(name));
    }
    GgufHeader lacking = header();
    lacking.tensors.erase(lacking.tensors.begin());
    CHECK_THAT(refusal(lacking), Catch::Contains("blk.0.attn_k.weight") && Catch::Contains("[32, 64]"));
}

TEST_CASE("files that are no models are refused as such", "[engine][model][gguf]") {
    const auto folder = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf" / "bad";
    std::ifstream file(folder / "index.json");
    int seen = 0;
    for (const auto& entry : nlohmann::json::parse(file)) {
        if (entry.at("expect") != "error_as_model") continue;
        const std::string name = entry.at("file");
        CAPTURE(name);
        const auto shape = read_model_shape(folder / name);
        REQUIRE_FALSE(shape);
        CHECK_THAT(shape.error().message, Catch::Contains(name));
        if (name.starts_with("architecture_"))
            CHECK_THAT(shape.error().message, Catch::Contains("general.architecture"));
        ++seen;
    }
    CHECK(seen == 10);
}

TEST_CASE("a GGUF file's end tokens are its eos, eot and eom, each once", "[engine][model][gguf]") {
    CHECK(gguf_end_tokens(header())->empty());
    auto ids = with(header(), "tokenizer.ggml.eos_token_id", number(2));
    CHECK(*gguf_end_tokens(ids) == std::vector<TokenId>{2});
    ids = with(with(ids, "tokenizer.ggml.eot_token_id", number(9)), "tokenizer.ggml.eom_token_id", number(2));
    CHECK(*gguf_end_tokens(ids) == std::vector<TokenId>{2, 9});
    const auto refused = gguf_end_tokens(with(ids, "tokenizer.ggml.eot_token_id", number(0xFFFFFFFFu)));
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message, Catch::Contains("tokenizer.ggml.eot_token_id"));
}

TEST_CASE("every tensor of ours has its name in GGUF", "[engine][model][gguf]") {
    CHECK(gguf_tensor_name("model.embed_tokens.weight") == "token_embd.weight");
    CHECK(gguf_tensor_name("model.norm.weight") == "output_norm.weight");
    CHECK(gguf_tensor_name("lm_head.weight") == "output.weight");
    CHECK(gguf_tensor_name("model.layers.12.self_attn.o_proj.bias") == "blk.12.attn_output.bias");
    CHECK(gguf_tensor_name("model.layers.0.self_attn.q_norm.weight") == "blk.0.attn_q_norm.weight");
    CHECK(gguf_tensor_name("model.layers.0.post_attention_layernorm.weight") == "blk.0.ffn_norm.weight");
    CHECK(gguf_tensor_name("model.layers.0.mlp.experts.weight").empty());
    CHECK(gguf_tensor_name("model.layers.weight").empty());
    CHECK(gguf_tensor_name("weight").empty());
    CHECK(is_stored_in_pairs("model.layers.1.self_attn.k_proj.bias", "mistral"));
    CHECK_FALSE(is_stored_in_pairs("model.layers.1.self_attn.v_proj.weight", "llama"));
    CHECK_FALSE(is_stored_in_pairs("model.layers.1.self_attn.k_proj.weight", "qwen2"));
}
