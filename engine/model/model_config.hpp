#pragma once

#include "engine/model/model_shape.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

namespace attune {

/// How rotary frequencies are derived from the base; names and meaning as in transformers' modeling_rope_utils.
enum class RopeKind : std::uint8_t {
    standard,  ///< also `dynamic`, which equals it up to max_position_embeddings
    linear,
    llama3,
    yarn,
};

struct RopeConfig {
    RopeKind kind = RopeKind::standard;
    double theta = 10000.0;
    double factor = 1.0;
    double original_context = 0;  ///< positions seen in pre-training (llama3, yarn)
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    bool truncate = true;           ///< yarn: round the correction range to whole dimensions
    double attention_factor = 1.0;  ///< multiplies cos and sin; resolved from factor and mscale for yarn
    std::vector<float> factors;     ///< divide the frequencies; [head_dim / 2] or empty (GGUF: rope_freqs.weight)
};

/// Everything of a model's description that the mathematics needs, beyond the dimensions every room sees.
struct ModelConfig {
    ModelShape shape;
    RopeConfig rope;
    float norm_eps = 1e-6F;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;
    bool qk_norm = false;  ///< RMSNorm over each head of q and k, before RoPE
};

/// Parses config.json's text. Errc::unsupported names the key that would change the result, Errc::invalid_argument a
/// missing or malformed one.
Result<ModelConfig> parse_model_config(std::string_view text);

/// The same from a model path: a folder's config.json, or a GGUF file's metadata (gguf_config.hpp).
Result<ModelConfig> read_model_config(const std::filesystem::path& model);

}  // namespace attune
