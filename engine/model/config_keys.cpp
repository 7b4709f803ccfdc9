#include "engine/model/config_keys.hpp"

#include <algorithm>
#include <array>

namespace attune {

namespace {

constexpr auto kUsed = std::to_array<std::string_view>({
    "architectures",
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size",
});

// Training, generation defaults, storage and bookkeeping.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_name_or_path",
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_name",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
});

// Known switches of other architectures and variants; named here so that the off position is accepted.
constexpr auto kOff = std::to_array<std::string_view>({
    "add_cross_attention",
    "attn_logit_softcapping",
    "chunk_size_feed_forward",
    "clip_qkv",
    "cross_attention_hidden_size",
    "final_logit_softcapping",
    "is_decoder",
    "is_encoder_decoder",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "pruned_heads",
    "qk_layernorm",
    "quantization_config",
    "rope_interleaved",
    "tie_encoder_decoder",
    "use_mrope",
});

constexpr auto kUnity = std::to_array<std::string_view>({
    "embedding_multiplier",
    "logit_scale",
    "logits_scaling",
    "partial_rotary_factor",
    "residual_multiplier",
});

constexpr auto kGgufUsed = std::to_array<std::string_view>({
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "vocab_size",
});

// tensor_data_layout names the order of q's and k's rows, which every file of the architecture has.
constexpr auto kGgufHarmless = std::to_array<std::string_view>({
    "decoder_start_token_id",
    "rope.scaling.finetuned",
    "tensor_data_layout",
});

constexpr auto kGgufOff = std::to_array<std::string_view>({
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.scale",
    "attention.shared_kv_layers",
    "attn_logit_softcapping",
    "expert_count",
    "expert_feed_forward_length",
    "expert_shared_count",
    "expert_used_count",
    "final_logit_softcapping",
    "leading_dense_block_count",
    "n_deepstack_layers",
    "nextn_predict_layers",
    "pooling_type",
    "rope.scaling.yarn_log_multiplier",
    "use_parallel_residual",
});

constexpr auto kGgufUnity = std::to_array<std::string_view>({
    "attention.causal",
    "attention.output_scale",
    "embedding_scale",
    "logit_scale",
    "residual_scale",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
});

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

ConfigKey classify_config_key(std::string_view key) {
    if (contains(kUsed, key)) return ConfigKey::used;
    if (contains(kHarmless, key)) return ConfigKey::harmless;
    if (contains(kOff, key)) return ConfigKey::off;
    if (contains(kUnity, key)) return ConfigKey::unity;
    return ConfigKey::unknown;
}

ConfigKey classify_gguf_key(std::string_view key) {
    if (contains(kGgufUsed, key)) return ConfigKey::used;
    if (contains(kGgufHarmless, key)) return ConfigKey::harmless;
    if (contains(kGgufOff, key)) return ConfigKey::off;
    if (contains(kGgufUnity, key)) return ConfigKey::unity;
    return ConfigKey::unknown;
}

}  // namespace attune
