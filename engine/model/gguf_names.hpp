#pragma once

#include <string>
#include <string_view>

namespace attune {

/// What a tensor of ours ("model.layers.3.self_attn.q_proj.weight") is called in a GGUF file ("blk.3.attn_q.weight").
/// Empty for a name without a counterpart.
std::string gguf_tensor_name(std::string_view name);

/// Whether llama.cpp keeps this tensor's rows as rotary pairs: the converter of its llama architecture does it to q and
/// k, weights and biases. `model_type` as in ModelShape.
bool is_stored_in_pairs(std::string_view name, std::string_view model_type);

}  // namespace attune
