#include "engine/module/peft_config.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>

namespace attune {
namespace {

Result<PeftConfig> parse(const std::string& members) {
    const std::string text =
        "{\"peft_type\":\"LORA\",\"target_modules\":[\"q_proj\"]" + (members.empty() ? "" : "," + members) + "}";
    return parse_peft_config(std::as_bytes(std::span(text)));
}

PeftConfig good(const std::string& members) {
    auto config = parse(members);
    if (!config) FAIL(config.error().message);
    return *std::move(config);
}

std::string fault(const std::string& members) {
    const auto config = parse(members);
    return config ? "" : config.error().message;
}

TEST_CASE("absent keys have PEFT's defaults", "[engine][module]") {
    const PeftConfig config = good("");
    CHECK(config.rank == 8);
    CHECK(config.alpha == 8);
    CHECK(config.scale("model.layers.0.self_attn.q_proj", 8) == 1.0);
}

TEST_CASE("the scale is alpha over the true rank, or over its root", "[engine][module]") {
    CHECK(good("\"lora_alpha\":16,\"r\":4").scale("x", 4) == 4.0);
    CHECK(good("\"lora_alpha\":6,\"use_rslora\":true").scale("x", 3) == Approx(6 / std::sqrt(3.0)));
    CHECK(good("\"lora_alpha\":2.5").scale("x", 5) == 0.5);
}

TEST_CASE("the first pattern that matches wins, in the order of the file", "[engine][module]") {
    const std::string path = "model.layers.1.self_attn.v_proj";
    CHECK(good(R"("alpha_pattern":{"v_proj":8,"layers\\.1\\..*v_proj":64})").alpha_pattern.lookup(path, 1) == 8);
    CHECK(good(R"("alpha_pattern":{"layers\\.1\\..*v_proj":64,"v_proj":8})").alpha_pattern.lookup(path, 1) == 64);
}

TEST_CASE("a pattern matches whole path parts from some dot to the end", "[engine][module]") {
    const auto lookup = [](const std::string& key, const std::string& path) {
        return good("\"rank_pattern\":{\"" + key + "\":3}").rank_pattern.lookup(path, 8);
    };
    CHECK(lookup("v_proj", "model.layers.1.self_attn.v_proj") == 3);
    CHECK(lookup("proj", "model.layers.1.self_attn.v_proj") == 8);
    CHECK(lookup("self_attn", "model.layers.1.self_attn.v_proj") == 8);
    CHECK(lookup("self_attn.v_proj", "model.layers.1.self_attn.v_proj") == 3);
    CHECK(lookup("^model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.v_proj") == 3);
    CHECK(lookup("^v_proj", "model.layers.1.self_attn.v_proj") == 8);
    CHECK(lookup("layers.1", "model.layers.11.self_attn.v_proj") == 8);
    CHECK(lookup("(up|down)_proj", "model.layers.1.mlp.down_proj") == 3);
}

TEST_CASE("target names match a path's end after a dot", "[engine][module][B10]") {
    const auto targets = [](const std::string& value, const std::string& path) {
        const std::string text = "{\"peft_type\":\"LORA\",\"target_modules\":" + value + "}";
        const auto config = parse_peft_config(std::as_bytes(std::span(text)));
        if (!config) FAIL(config.error().message);
        return config->is_target(path, "llama");
    };
    CHECK(targets(R"(["gate_proj"])", "model.layers.0.mlp.gate_proj"));
    CHECK(targets(R"(["mlp.gate_proj"])", "model.layers.0.mlp.gate_proj"));
    CHECK(targets(R"(["model.layers.0.mlp.gate_proj"])", "model.layers.0.mlp.gate_proj"));
    CHECK_FALSE(targets(R"(["proj"])", "model.layers.0.mlp.gate_proj"));
    CHECK_FALSE(targets(R"(["feed_forward.gate_proj"])", "model.layers.0.mlp.gate_proj"));
    CHECK(targets(R"("all-linear")", "model.layers.0.mlp.gate_proj"));
    CHECK(targets(R"("All-Linear")", "model.layers.0.mlp.gate_proj"));
    CHECK(targets(R"(".*gate_proj")", "model.layers.0.mlp.gate_proj"));
    CHECK_FALSE(targets(R"("gate_proj")", "model.layers.0.mlp.gate_proj"));
    CHECK(targets("null", "model.layers.0.self_attn.v_proj"));
    CHECK_FALSE(targets("null", "model.layers.0.self_attn.k_proj"));
}

TEST_CASE("excluded modules and other layers are no targets", "[engine][module]") {
    const std::string q0 = "model.layers.0.self_attn.q_proj";
    const std::string q11 = "model.layers.11.self_attn.q_proj";
    CHECK_FALSE(good(R"("exclude_modules":["q_proj"])").is_target(q0, "llama"));
    CHECK_FALSE(good(R"("exclude_modules":".*layers\\.0\\..*")").is_target(q0, "llama"));
    CHECK(good(R"("exclude_modules":".*layers\\.0\\..*")").is_target(q11, "llama"));
    CHECK(good(R"("layers_to_transform":[0,1])").is_target(q0, "llama"));
    CHECK_FALSE(good(R"("layers_to_transform":[0,1])").is_target(q11, "llama"));
    CHECK(good(R"("layers_to_transform":11,"layers_pattern":"layers")").is_target(q11, "llama"));
    CHECK(good(R"("layers_to_transform":11,"layers_pattern":["h","layers"])").is_target(q11, "llama"));
    CHECK_FALSE(good(R"("layers_to_transform":11,"layers_pattern":["h"])").is_target(q11, "llama"));
}

TEST_CASE("settings left alone are accepted in every empty form", "[engine][module]") {
    for (const char* key :
         {"trainable_token_indices", "alora_invocation_tokens", "target_parameters", "layer_replication",
          "fan_in_fan_out", "megatron_config", "kasa_config", "use_bdlora", "arrow_config", "monteclora_config",
          "use_qalora", "auto_map", "modules_to_save", "a_key_of_tomorrow"})
        for (const char* empty : {"null", "false", "[]", "{}"}) {
            if (std::string(key) == "modules_to_save" && empty[0] != 'n' && empty[0] != '[') continue;
            CAPTURE(key, empty);
            CHECK(fault("\"" + std::string(key) + "\":" + empty).empty());
        }
}

TEST_CASE("keys of training and saving are ignored whatever they say", "[engine][module]") {
    CHECK(fault(R"("lora_dropout":0.1,"eva_config":{"rho":2},"loftq_config":{"bits":4},"velora_config":{"rank":1},
                   "base_model_name_or_path":"x","revision":"main","peft_version":"0.21.2","inference_mode":false,
                   "auto_mapping":{"base_model_class":"LlamaForCausalLM"},"qalora_group_size":16,
                   "megatron_core":"megatron.core","runtime_config":{"ephemeral_gpu_offload":true},
                   "init_lora_weights":"gaussian")")
              .empty());
}

TEST_CASE("a config that cannot be served is refused by its key", "[engine][module][B15][E11]") {
    const auto named = [](const std::string& members, const std::string& expected) {
        const std::string message = fault(members);
        CAPTURE(members, message);
        CHECK(message.rfind("adapter_config.json: ", 0) == 0);
        CHECK(message.find(expected) != std::string::npos);
    };
    named(R"("trainable_token_indices":[-3])", "trainable_token_indices holds -3, not a token id");
    named(R"("trainable_token_indices":[3,4,3])", "trainable_token_indices names a token twice");
    named(R"("trainable_token_indices":{"lm_head":[3]})", "trainable_token_indices of \"lm_head\"");
    named(R"("alora_invocation_tokens":"go")", "alora_invocation_tokens is \"go\", not a list of token ids");
    named(R"("alora_invocation_string":"<go>")", "alora_invocation_string is set");
    named(R"("bias":"some")", "bias is \"some\", it may be none, all or lora_only");
    named(R"("target_parameters":["experts.w"])", "target_parameters is set");
    named(R"("layer_replication":[[0,4],[2,5]])", "layer_replication is set");
    named(R"("fan_in_fan_out":true)", "fan_in_fan_out is set");
    named(R"("megatron_config":{"a":1})", "megatron_config is set");
    named(R"("kasa_config":{"a":1})", "kasa_config is set");
    named(R"("use_bdlora":{"a":1})", "use_bdlora is set");
    named(R"("arrow_config":{"a":1})", "arrow_config is set");
    named(R"("monteclora_config":{"a":1})", "monteclora_config is set");
    named(R"("use_qalora":true)", "use_qalora is set");
    named(R"("auto_map":{"AutoModel":"x.Y"})", "code from a module is never run");
    named(R"("new_math":true)", "unknown key \"new_math\" could change the result");
    named(R"("task_type":"SEQ_CLS")", "task_type \"SEQ_CLS\" is not CAUSAL_LM");
    for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"})
        named("\"init_lora_weights\":\"" + std::string(init) + "\"",
              "\"" + std::string(init) + "\" belongs to a changed base");
    named(R"("r":0)", "r is 0, not a positive whole number");
    named(R"("r":"8")", "r is \"8\"");
    named(R"("lora_alpha":"big")", "lora_alpha is \"big\", not a number");
    named(R"("use_rslora":1)", "use_rslora is 1, not true or false");
    named(R"("rank_pattern":{"q_proj":2.5})", "rank_pattern of \"q_proj\" is 2.5");
    named(R"("rank_pattern":{"(q_proj":2})", "rank_pattern: pattern");
    named(R"("rank_pattern":[1])", "rank_pattern is no object");
    named(R"("modules_to_save":"lm_head")", "modules_to_save is \"lm_head\", not a list of names");
    named(R"("layers_to_transform":[-1])", "layers_to_transform holds -1");
    named(R"("layers_pattern":"h(")", "is no plain name");
}

TEST_CASE("other adapter types are named", "[engine][module]") {
    const auto type_fault = [](const std::string& text) {
        const auto config = parse_peft_config(std::as_bytes(std::span(text)));
        return config ? "" : config.error().message;
    };
    CHECK(type_fault(R"({"peft_type":"HIRA"})") == "adapter_config.json: peft_type \"HIRA\" is not supported");
    CHECK(type_fault(R"({"peft_type":"MISS","init_weights":"cat"})") ==
          "adapter_config.json: init_weights \"cat\" is no mode of MiSS (true, false, bat, mini)");
    CHECK(type_fault(R"({"peft_type":"MISS","lora_alpha":8})") ==
          "adapter_config.json: unknown key \"lora_alpha\" could change the result");
    CHECK(type_fault(R"({"peft_type":"VERA","save_projection":false})").find("not portable") != std::string::npos);
    CHECK(type_fault(R"({"peft_type":"OFT","coft":true})").find("coft is set") != std::string::npos);
    CHECK(type_fault(R"({"peft_type":"OFT","num_cayley_neumann_terms":1})").find("it may be 2 to 64") !=
          std::string::npos);
    CHECK(type_fault(R"({"peft_type":"PREFIX_TUNING"})") ==
          "adapter_config.json: num_virtual_tokens is null, not a positive whole number");
    CHECK(type_fault(R"({"peft_type":"PROMPT_TUNING","num_virtual_tokens":4,"num_transformer_submodules":2})") ==
          "adapter_config.json: num_transformer_submodules is 2: only decoders are supported");
    CHECK(type_fault(R"({"peft_type":"BONE","r":8})").empty());
    CHECK(type_fault(R"({"r":4})") == "adapter_config.json: peft_type is missing");
    CHECK(type_fault("[1]") == "adapter_config.json does not hold a JSON object");
    CHECK(type_fault("{") == "adapter_config.json is not valid JSON");
    CHECK(type_fault(std::string(100000, '[')) == "adapter_config.json is nested too deeply");
    CHECK(type_fault(R"({"peft_type":"LORA","target_modules":".*q_proj","layers_to_transform":[1]})") ==
          "adapter_config.json: layers_to_transform and layers_pattern need target_modules to be a list");
    CHECK(type_fault(R"({"peft_type":"LORA","target_modules":[]})") == "adapter_config.json: target_modules is empty");
}

}  // namespace
}  // namespace attune
