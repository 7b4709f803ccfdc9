#include "engine/model/model_config.hpp"
#include "support/temporary_folder.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>

#include <catch2/catch.hpp>

using namespace attune;
using Json = nlohmann::json;

namespace {

Json llama() {
    return Json{{"model_type", "llama"},
                {"architectures", Json::array({"LlamaForCausalLM"})},
                {"hidden_size", 64},
                {"intermediate_size", 160},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 2},
                {"num_hidden_layers", 3},
                {"vocab_size", 320},
                {"max_position_embeddings", 512}};
}

Json family(const std::string& type) {
    Json json = llama();
    json["model_type"] = type;
    json.erase("architectures");
    return json;
}

Result<ModelConfig> parse(const Json& json) { return parse_model_config(json.dump()); }

std::vector<int> windows(const ModelConfig& config) {
    std::vector<int> out;
    for (const LayerShape& layer : config.shape.layers) out.push_back(layer.window);
    return out;
}

/// The error's message, or "accepted".
std::string refusal(const Json& json) {
    const auto config = parse(json);
    return config ? "accepted" : config.error().message;
}

}  // namespace

TEST_CASE("both spellings of a config say the same", "[engine][model][config]") {
    Json old_style = llama();
    old_style.update({{"rope_theta", 500000.0},
                      {"rope_scaling",
                       {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}}},
                      {"torch_dtype", "bfloat16"}});
    Json new_style = llama();
    new_style.update({{"rope_parameters",
                       {{"rope_theta", 500000.0},
                        {"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}}},
                      {"dtype", "bfloat16"}});
    const auto a = parse(old_style);
    const auto b = parse(new_style);
    REQUIRE(a);
    REQUIRE(b);
    for (const auto* config : {&*a, &*b}) {
        CHECK(config->rope.kind == RopeKind::llama3);
        CHECK(config->rope.theta == 500000.0);
        CHECK(config->rope.factor == 8.0);
        CHECK(config->rope.original_context == 32);
    }
}

TEST_CASE("absent keys take the family's defaults", "[engine][model][config]") {
    const auto config = parse(llama());
    REQUIRE(config);
    CHECK(config->rope.theta == 10000.0);
    CHECK(config->norm_eps == 1e-6F);
    CHECK(config->shape.head_dim == 16);
    CHECK_FALSE(config->shape.tied_embeddings);
    CHECK_FALSE(config->qkv_bias);
    CHECK(windows(*config) == std::vector<int>{0, 0, 0});

    Json without_heads = llama();
    without_heads.erase("num_key_value_heads");
    CHECK(parse(without_heads)->shape.kv_heads == 4);
    CHECK(parse(family("qwen3"))->shape.head_dim == 128);
    CHECK(parse(family("qwen3"))->qk_norm);
    CHECK(parse(family("qwen2"))->qkv_bias);
    CHECK_FALSE(parse(family("qwen2"))->o_bias);
}

TEST_CASE("a llama with biases says so", "[engine][model][config]") {
    Json json = llama();
    json["attention_bias"] = true;
    json["mlp_bias"] = true;
    const auto config = parse(json);
    REQUIRE(config);
    CHECK(config->qkv_bias);
    CHECK(config->o_bias);
    CHECK(config->mlp_bias);
}

TEST_CASE("sliding windows follow each family's rule", "[engine][model][config]") {
    Json mistral = family("mistral");
    CHECK(windows(*parse(mistral)) == std::vector<int>{4096, 4096, 4096});  // MistralConfig's default
    mistral["sliding_window"] = nullptr;
    CHECK(windows(*parse(mistral)) == std::vector<int>{0, 0, 0});
    mistral["sliding_window"] = 8;
    CHECK(windows(*parse(mistral)) == std::vector<int>{8, 8, 8});
    mistral["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    CHECK(windows(*parse(mistral)) == std::vector<int>{8, 0, 8});

    Json qwen = family("qwen2");
    qwen["sliding_window"] = 8;
    qwen["max_window_layers"] = 1;
    CHECK(windows(*parse(qwen)) == std::vector<int>{0, 0, 0});  // use_sliding_window is off
    qwen["use_sliding_window"] = true;
    CHECK(windows(*parse(qwen)) == std::vector<int>{0, 8, 8});
    qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
    CHECK(windows(*parse(qwen)) == std::vector<int>{8, 0, 0});
}

TEST_CASE("whatever would change the result is refused by name", "[engine][model][config][E11]") {
    const std::vector<std::pair<Json, std::string>> cases{
        {{{"hidden_act", "gelu"}}, "hidden_act"},
        {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
        {{{"quantization_config", {{"bits", 4}}}}, "quantization_config"},
        {{{"logit_scale", 0.0625}}, "logit_scale"},
        {{{"logits_scaling", 8}}, "logits_scaling"},
        {{{"final_logit_softcapping", 30.0}}, "final_logit_softcapping"},
        {{{"attn_logit_softcapping", 1}}, "attn_logit_softcapping"},
        {{{"num_experts", 8}}, "num_experts"},
        {{{"num_local_experts", 8}}, "num_local_experts"},
        {{{"auto_map", {{"AutoConfig", "x.Y"}}}}, "auto_map"},
        {{{"rope_interleaved", true}}, "rope_interleaved"},
        {{{"some_new_mechanism", 1}}, "some_new_mechanism"},
        {{{"sliding_window", 128}}, "sliding_window"},
        {{{"architectures", Json::array({"LlamaForSequenceClassification"})}}, "LlamaForSequenceClassification"},
        {{{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}}}}, "longrope"},
        {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"mrope_section", {1, 2, 3}}}}}, "mrope_section"},
        {{{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}, "full_attention"},
    };
    for (const auto& [change, name] : cases) {
        Json json = llama();
        json.update(change);
        CAPTURE(change.dump());
        CHECK_THAT(refusal(json), Catch::Contains(name));
        CHECK(parse(json).error().code == Errc::unsupported);
    }
    CHECK_THAT(refusal(family("gemma2")), Catch::Contains("gemma2"));
    Json biased = family("mistral");
    biased["attention_bias"] = true;
    CHECK_THAT(refusal(biased), Catch::Contains("attention_bias"));
    Json chunked = family("mistral");
    chunked["layer_types"] = {"chunked_attention", "full_attention", "full_attention"};
    CHECK_THAT(refusal(chunked), Catch::Contains("chunked_attention"));
}

TEST_CASE("the off position of a foreign switch is accepted", "[engine][model][config]") {
    Json json = llama();
    json.update({{"partial_rotary_factor", 1.0},
                 {"quantization_config", nullptr},
                 {"logit_scale", 1.0},
                 {"num_experts", 0},
                 {"pruned_heads", Json::object()},
                 {"is_encoder_decoder", false},
                 {"rope_scaling", nullptr},
                 {"some_new_mechanism", nullptr},
                 {"use_cache", true},
                 {"transformers_version", "4.40.0"}});
    CHECK(refusal(json) == "accepted");
}

TEST_CASE("missing and malformed dimensions are named", "[engine][model][config]") {
    for (const char* key : {"model_type", "hidden_size", "intermediate_size", "num_attention_heads",
                            "num_hidden_layers", "vocab_size", "max_position_embeddings"}) {
        Json json = llama();
        json.erase(key);
        CHECK_THAT(refusal(json), Catch::Contains(key));
    }
    const std::vector<std::pair<Json, std::string>> cases{
        {{{"hidden_size", 0}}, "hidden_size"},
        {{{"hidden_size", -64}}, "hidden_size"},
        {{{"hidden_size", "64"}}, "hidden_size"},
        {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
        {{{"vocab_size", 4294967296}}, "vocab_size"},
        {{{"head_dim", 15}}, "head_dim"},
        {{{"rms_norm_eps", "small"}}, "rms_norm_eps"},
        {{{"tie_word_embeddings", 1}}, "tie_word_embeddings"},
        {{{"rope_theta", "big"}}, "rope_theta"},
        {{{"rope_theta", 0}}, "rope_theta"},
        {{{"rope_scaling", {{"type", "linear"}}}}, "factor"},
        {{{"num_hidden_layers", 1000000}}, "num_hidden_layers"},
    };
    for (const auto& [change, name] : cases) {
        Json json = llama();
        json.update(change);
        CAPTURE(change.dump());
        CHECK_THAT(refusal(json), Catch::Contains(name));
    }
    CHECK_FALSE(parse_model_config("[1, 2"));
    CHECK_FALSE(parse_model_config("[]"));
    CHECK_FALSE(parse_model_config(""));
}

TEST_CASE("dynamic rope is served up to the context where it equals the unscaled one", "[engine][model][config]") {
    Json json = llama();
    json["rope_scaling"] = {{"type", "dynamic"}, {"factor", 4.0}};
    const auto config = parse(json);
    REQUIRE(config);
    CHECK(config->rope.kind == RopeKind::standard);
    CHECK(config->shape.max_context == 512);
}

TEST_CASE("yarn's context is the stretched one and its factor follows from mscale", "[engine][model][config]") {
    Json json = llama();
    json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
    const auto plain = parse(json);
    REQUIRE(plain);
    CHECK(plain->shape.max_context == 2048);
    CHECK(plain->rope.attention_factor == Approx(0.1 * std::log(4.0) + 1.0));
    json["rope_scaling"]["mscale"] = 0.707;
    json["rope_scaling"]["mscale_all_dim"] = 0.707;
    CHECK(parse(json)->rope.attention_factor == Approx(1.0));
    json["rope_scaling"]["attention_factor"] = 0.5;
    CHECK(parse(json)->rope.attention_factor == 0.5);
}

TEST_CASE("a projection's name and sizes follow the shape", "[engine][model][config]") {
    Json json = family("qwen3");
    json["head_dim"] = 32;
    const ModelShape shape = parse(json)->shape;
    CHECK(projection_name(Projection::q) == "q_proj");
    CHECK(projection_name(Projection::down) == "down_proj");
    CHECK(shape.out_features(Projection::q) == 128);
    CHECK(shape.out_features(Projection::k) == 64);
    CHECK(shape.in_features(Projection::o) == 128);
    CHECK(shape.out_features(Projection::o) == 64);
    CHECK(shape.in_features(Projection::down) == 160);
    CHECK(shape.out_features(Projection::gate) == 160);
}

TEST_CASE("end tokens come from generation_config before config, one or several", "[engine][model][config]") {
    const TemporaryFolder folder;
    folder.write("config.json", R"({"eos_token_id": 2})");
    CHECK(*read_end_tokens(folder.path()) == std::vector<TokenId>{2});
    folder.write("generation_config.json", R"({"eos_token_id": [7, 9]})");
    CHECK(*read_end_tokens(folder.path()) == std::vector<TokenId>{7, 9});
    folder.write("generation_config.json", R"({"eos_token_id": null})");
    CHECK(*read_end_tokens(folder.path()) == std::vector<TokenId>{2});
    folder.write("config.json", R"({})");
    CHECK(read_end_tokens(folder.path())->empty());
    folder.write("generation_config.json", R"({"eos_token_id": "</s>"})");
    CHECK_FALSE(read_end_tokens(folder.path()));
}

TEST_CASE("a folder without a config says so and never shows its path", "[engine][model][config]") {
    const TemporaryFolder folder;
    const auto shape = read_model_shape(folder.path());
    REQUIRE_FALSE(shape);
    CHECK(shape.error().code == Errc::io);
    CHECK_THAT(shape.error().message, !Catch::Contains(folder.path().string()));
}
