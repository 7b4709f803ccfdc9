#pragma once

#include "attune/result.hpp"
#include "engine/files/gguf.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace attune {

class GenerationHash;

/// What a GGUF module is: a LoRA as llama.cpp's converter writes it (general.type "adapter"), or a control vector
/// (general.architecture "controlvector", tensors direction.N). Checked against its header; points into it.
struct GgufPlan {
    std::string kind;  ///< lora, alora, control_vector
    int max_rank = 0;
    std::vector<std::string> targets;
    std::uint64_t parsed_bytes = 0;
    std::vector<TokenId> invocation;

    struct Pair {
        int layer = 0;
        Projection projection{};
        bool embedding = false;  ///< token_embd: A is transposed
        int rank = 0;
        float scale = 1.0F;
        int unpermute_heads = 0;  ///< rows of B were reordered for ggml's RoPE, this many heads; 0: they were not
        const StoredTensor* a = nullptr;
        const StoredTensor* b = nullptr;
    };
    std::vector<Pair> pairs;  ///< ascending (layer, projection)
    struct Direction {
        int layer = 0;
        const StoredTensor* vector = nullptr;
    };
    std::vector<Direction> directions;  ///< ascending layer
};

/// Errc::invalid_module naming the key or tensor. Every tensor has its use, every pair both halves.
Result<GgufPlan> plan_gguf(const GgufHeader& header, const ModelShape& base, int max_rank);

/// Reads the file from `begin` (where the header ends) on, once and in order, hashing each byte.
Result<void> read_gguf_module(const ReadOnlyFile& file, const GgufHeader& header, std::uint64_t begin,
                              const GgufPlan& plan, GenerationHash& hash, Module& into);

}  // namespace attune
