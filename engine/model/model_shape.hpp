#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// The linear layers a module can touch. Order is the table's order in ModuleSlots. The head is there once, the others
/// in every layer.
enum class Projection : std::uint8_t { q, k, v, o, gate, up, down, head };
inline constexpr int kProjections = 7;  ///< of one layer

/// "q_proj" and so on, as Hugging Face names them; "lm_head".
std::string_view projection_name(Projection projection);

struct LayerShape {
    int window = 0;  ///< sliding window in tokens (a token sees itself and window - 1 before it); 0 = full attention
};

/// A base model's dimensions: all that checks, schedules and budgets need, without its weights.
struct ModelShape {
    std::string model_type;  ///< llama, mistral, qwen2, qwen3
    int hidden_size = 0;
    int intermediate_size = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int vocab_size = 0;
    int max_context = 0;  ///< tokens
    bool tied_embeddings = false;
    std::vector<LayerShape> layers;
    std::string checkpoint;  ///< "sha256:..." (DESIGN, checkpoint id); empty until known

    int layer_count() const { return static_cast<int>(layers.size()); }
    int in_features(Projection projection) const;
    int out_features(Projection projection) const;
};

/// `model` below is a model path: a Hugging Face folder or a GGUF file.

/// Only config.json or the GGUF header: dimensions, and refusals by name of whatever would change the result. Without
/// weights or torch.
Result<ModelShape> read_model_shape(const std::filesystem::path& model);

/// `eos_token_id` of generation_config.json, else of config.json: one id or a list. Of a GGUF file its eos, eot and eom
/// tokens. Empty when nothing names one.
Result<std::vector<TokenId>> read_end_tokens(const std::filesystem::path& model);

}  // namespace attune
