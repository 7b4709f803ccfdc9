#include "engine/module/peft_keys.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace attune {
namespace {

enum class Rule {
    read,     // used by parse_peft_config
    ignored,  // training only, or of no effect once the tensors are checked
    refused,  // changes the result: allowed only as null, false or empty
};

struct KeyRule {
    std::string_view key;
    Rule rule;
    std::string_view reason = {};
};

// How the adapter was trained, saved or found, and what every kind has.
constexpr KeyRule kCommon[] = {
    {"peft_type", Rule::read},         {"task_type", Rule::read},
    {"auto_mapping", Rule::ignored},   {"base_model_name_or_path", Rule::ignored},
    {"revision", Rule::ignored},       {"peft_version", Rule::ignored},
    {"inference_mode", Rule::ignored}, {"auto_map", Rule::refused, "code from a module is never run"},
};

// Kinds that sit on linear layers.
constexpr KeyRule kTargets[] = {
    {"target_modules", Rule::read},  {"exclude_modules", Rule::read},
    {"modules_to_save", Rule::read}, {"layers_to_transform", Rule::read},
    {"layers_pattern", Rule::read},  {"fan_in_fan_out", Rule::refused, "transposed layers are not supported"},
};

constexpr KeyRule kLora[] = {
    {"r", Rule::read},
    {"lora_alpha", Rule::read},
    {"use_rslora", Rule::read},
    {"rank_pattern", Rule::read},
    {"alpha_pattern", Rule::read},
    {"init_lora_weights", Rule::read},
    {"use_dora", Rule::read},
    {"lora_bias", Rule::read},
    {"bias", Rule::read},
    {"alora_invocation_tokens", Rule::read},
    {"trainable_token_indices", Rule::read},
    {"ensure_weight_tying", Rule::read},
    {"lora_dropout", Rule::ignored},
    {"megatron_core", Rule::ignored},
    {"loftq_config", Rule::ignored},
    {"eva_config", Rule::ignored},
    {"corda_config", Rule::ignored},
    {"lora_ga_config", Rule::ignored},
    {"velora_config", Rule::ignored},
    {"qalora_group_size", Rule::ignored},
    {"runtime_config", Rule::ignored},
    {"invocation_string", Rule::refused, "aLoRA needs alora_invocation_tokens: a text may be tokenised otherwise"},
    {"alora_invocation_string", Rule::refused,
     "aLoRA needs alora_invocation_tokens: a text may be tokenised otherwise"},
    {"target_parameters", Rule::refused, "adapters of bare parameters are not supported"},
    {"layer_replication", Rule::refused, "it changes the depth of the base"},
    {"megatron_config", Rule::refused, "Megatron layers are not supported"},
    {"kasa_config", Rule::refused, "it changes the base"},
    {"use_bdlora", Rule::refused, "block-diagonal LoRA is not supported"},
    {"arrow_config", Rule::refused, "Arrow routing is not supported"},
    {"monteclora_config", Rule::refused, "MonteCLoRA is not supported"},
    {"use_qalora", Rule::refused, "QA-LoRA is not supported"},
};

// The schedule that chose the ranks; rank_pattern holds masks of its own there.
constexpr KeyRule kAdaLora[] = {
    {"target_r", Rule::ignored}, {"init_r", Rule::ignored},     {"tinit", Rule::ignored},
    {"tfinal", Rule::ignored},   {"deltaT", Rule::ignored},     {"beta1", Rule::ignored},
    {"beta2", Rule::ignored},    {"total_step", Rule::ignored}, {"orth_reg_weight", Rule::ignored},
};

constexpr KeyRule kMiss[] = {
    {"r", Rule::read},    {"mini_r", Rule::read},          {"init_weights", Rule::read},
    {"bias", Rule::read}, {"miss_dropout", Rule::ignored}, {"bone_dropout", Rule::ignored},
};

constexpr KeyRule kVera[] = {
    {"r", Rule::read},
    {"bias", Rule::read},
    {"save_projection", Rule::read},
    {"projection_prng_key", Rule::ignored},
    {"vera_dropout", Rule::ignored},
    {"d_initial", Rule::ignored},
    {"init_weights", Rule::ignored},
};

constexpr KeyRule kLycoris[] = {
    {"r", Rule::read},
    {"alpha", Rule::read},
    {"rank_pattern", Rule::read},
    {"alpha_pattern", Rule::read},
    {"rank_dropout", Rule::ignored},
    {"module_dropout", Rule::ignored},
    {"rank_dropout_scale", Rule::ignored},
    {"init_weights", Rule::ignored},
    {"use_effective_conv2d", Rule::ignored},  // of convolutions, which these bases have not
    {"decompose_both", Rule::ignored},        // seen in the tensors' shapes
    {"decompose_factor", Rule::ignored},
};

constexpr KeyRule kOft[] = {
    {"bias", Rule::read},
    {"use_cayley_neumann", Rule::read},
    {"num_cayley_neumann_terms", Rule::read},
    {"block_share", Rule::read},
    {"coft", Rule::refused, "constrained OFT changes its rotation as it runs"},
    {"r", Rule::ignored},  // block size and count are seen in the tensors' shapes
    {"oft_block_size", Rule::ignored},
    {"module_dropout", Rule::ignored},
    {"eps", Rule::ignored},
    {"init_weights", Rule::ignored},
};

constexpr KeyRule kBoft[] = {
    {"bias", Rule::read},
    {"boft_block_size", Rule::ignored},
    {"boft_block_num", Rule::ignored},
    {"boft_n_butterfly_factor", Rule::ignored},
    {"boft_dropout", Rule::ignored},
    {"init_weights", Rule::ignored},
};

constexpr KeyRule kIa3[] = {
    {"feedforward_modules", Rule::read},
    {"init_ia3_weights", Rule::ignored},
};

constexpr KeyRule kPrompt[] = {
    {"num_virtual_tokens", Rule::read},
    {"token_dim", Rule::read},
    {"num_layers", Rule::read},
    {"num_transformer_submodules", Rule::read},
    {"num_attention_heads", Rule::ignored},  // follows from token_dim and the base
    {"modules_to_save", Rule::refused, "whole modules beside a prompt are not supported"},
    // How the embeddings were made; the file holds them ready to use.
    {"prompt_tuning_init", Rule::ignored},
    {"prompt_tuning_init_text", Rule::ignored},
    {"tokenizer_name_or_path", Rule::ignored},
    {"tokenizer_kwargs", Rule::ignored},
    {"encoder_reparameterization_type", Rule::ignored},
    {"encoder_hidden_size", Rule::ignored},
    {"encoder_num_layers", Rule::ignored},
    {"encoder_dropout", Rule::ignored},
    {"prefix_projection", Rule::ignored},
    {"init_weights", Rule::ignored},
};

std::span<const KeyRule> own_keys(PeftType type) {
    switch (type) {
        case PeftType::lora:
        case PeftType::adalora:
            return kLora;
        case PeftType::miss:
            return kMiss;
        case PeftType::vera:
            return kVera;
        case PeftType::loha:
        case PeftType::lokr:
            return kLycoris;
        case PeftType::oft:
            return kOft;
        case PeftType::boft:
            return kBoft;
        case PeftType::ia3:
            return kIa3;
        case PeftType::prefix:
        case PeftType::prompt:
        case PeftType::p_tuning:
            break;
    }
    return kPrompt;
}

const KeyRule* find_key(std::span<const KeyRule> rules, std::string_view key) {
    const auto found = std::find_if(rules.begin(), rules.end(), [&](const KeyRule& rule) { return rule.key == key; });
    return found == rules.end() ? nullptr : &*found;
}

const KeyRule* find_key(PeftType type, std::string_view key) {
    if (const KeyRule* rule = find_key(kCommon, key)) return rule;
    if (const KeyRule* rule = find_key(own_keys(type), key)) return rule;
    if (type == PeftType::adalora)
        if (const KeyRule* rule = find_key(kAdaLora, key)) return rule;
    return is_prompt_learning(type) ? nullptr : find_key(kTargets, key);
}

}  // namespace

Result<void> check_peft_keys(const OrderedJson& config, PeftType type) {
    const auto refuse = [](const std::string& fault) {
        return make_error(Errc::invalid_module, "adapter_config.json: " + fault);
    };
    for (const auto& [key, value] : config.items()) {
        if (is_empty(value)) continue;
        const KeyRule* rule = find_key(type, key);
        if (rule == nullptr) return refuse("unknown key " + in_quotes(key) + " could change the result");
        if (rule->rule == Rule::refused) return refuse(key + " is set: " + std::string(rule->reason));
    }
    return {};
}

}  // namespace attune
