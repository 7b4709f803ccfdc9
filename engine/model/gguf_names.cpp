#include "engine/model/gguf_names.hpp"

#include <array>
#include <utility>

namespace attune {

namespace {

using Names = std::pair<std::string_view, std::string_view>;

constexpr auto kTop =
    std::to_array<Names>({{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}});
constexpr auto kLayer = std::to_array<Names>({{"input_layernorm", "attn_norm"},
                                              {"post_attention_layernorm", "ffn_norm"},
                                              {"self_attn.q_proj", "attn_q"},
                                              {"self_attn.k_proj", "attn_k"},
                                              {"self_attn.v_proj", "attn_v"},
                                              {"self_attn.o_proj", "attn_output"},
                                              {"self_attn.q_norm", "attn_q_norm"},
                                              {"self_attn.k_norm", "attn_k_norm"},
                                              {"mlp.gate_proj", "ffn_gate"},
                                              {"mlp.up_proj", "ffn_up"},
                                              {"mlp.down_proj", "ffn_down"}});
constexpr std::string_view kLayers = "model.layers.";

}  // namespace

std::string gguf_tensor_name(std::string_view name) {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    const std::string_view kind = name.substr(dot);  // ".weight" or ".bias"
    std::string_view stem = name.substr(0, dot);
    if (!stem.starts_with(kLayers)) {
        for (const auto& [ours, theirs] : kTop) {
            if (stem == ours) return std::string(theirs).append(kind);
        }
        return {};
    }
    stem.remove_prefix(kLayers.size());
    const auto end = stem.find('.');
    if (end == std::string_view::npos) return {};
    const std::string_view layer = stem.substr(0, end);
    stem.remove_prefix(end + 1);
    for (const auto& [ours, theirs] : kLayer) {
        if (stem == ours) return std::string("blk.").append(layer).append(".").append(theirs).append(kind);
    }
    return {};
}

bool is_stored_in_pairs(std::string_view name, std::string_view model_type) {
    if (model_type != "llama" && model_type != "mistral") return false;
    return name.find(".self_attn.q_proj.") != std::string_view::npos ||
           name.find(".self_attn.k_proj.") != std::string_view::npos;
}

}  // namespace attune
