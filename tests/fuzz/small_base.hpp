#pragma once

#include "engine/model/model_shape.hpp"

namespace attune::fuzz {

/// A base that a module's files are checked against.
inline ModelShape small_base() {
    ModelShape base;
    base.model_type = "llama";
    base.hidden_size = 8;
    base.intermediate_size = 16;
    base.heads = 2;
    base.kv_heads = 1;
    base.head_dim = 4;
    base.vocab_size = 32;
    base.max_context = 64;
    base.layers.resize(2);
    base.checkpoint = "sha256:aaaa";
    return base;
}

}  // namespace attune::fuzz
