#include "engine/model/llama_model.hpp"

#include "engine/weights/base_audit.hpp"

namespace attune {

namespace {

/// A projection's columns within a fused result.
torch::Tensor columns(const torch::Tensor& y, const Weight& weight, std::size_t part) {
    if (weight.parts() == 1 && weight.part(0).rows == y.size(1)) return y;
    return y.narrow(1, weight.part(part).first_output, weight.part(part).rows);
}

bool is_attention(Projection projection) {
    return projection == Projection::q || projection == Projection::k || projection == Projection::v ||
           projection == Projection::o;
}

}  // namespace

/// What one forward pass shares between its layers.
struct LlamaModel::Pass {
    torch::Tensor cos, sin;  // [rows, head_dim / 2]
    const ModuleSlots& slots;
    std::shared_ptr<const SlotPlan> plan;
    const Attention& attention;

    /// y plus what the rows' modules add to this projection. x is the projection's input.
    torch::Tensor touch(int layer, Projection projection, const torch::Tensor& x, const torch::Tensor& y) const {
        if (!slots.touches(layer, projection, *plan)) return y;
        return slots.apply(layer, projection, x, y, *plan);
    }
};

LlamaModel::LlamaModel(ModelConfig config, const ModelOptions& options)
    : config_(std::move(config)),
      options_(options),
      kernels_(options.device.is_cpu() && !options.torch_kernels),
      math_(kernels_),
      rope_(config_.rope, config_.shape.head_dim, options.device) {
    const ModelShape& shape = config_.shape;
    const WeightLayout packed = kernels_ ? WeightLayout::panels : WeightLayout::rows;
    // An embedding that is only gathered from stays in rows; a tied one is also the largest product of a step.
    embedding_ = add_embedding("model.embed_tokens.weight", shape.tied_embeddings ? packed : WeightLayout::rows);
    head_ = shape.tied_embeddings ? embedding_ : add_embedding("lm_head.weight", packed);
    final_norm_ = add_vector("model.norm.weight", shape.hidden_size);
    for (int layer = 0; layer < shape.layer_count(); ++layer) layers_.push_back(add_layer(layer));
}

LlamaModel::WeightPtr LlamaModel::add_matrix(const std::string& prefix, const std::vector<Projection>& projections) {
    const ModelShape& shape = config_.shape;
    const std::int64_t in = shape.in_features(projections.front());
    std::vector<Weight::Part> parts;
    for (const Projection projection : projections) {
        const std::string block = is_attention(projection) ? "self_attn." : "mlp.";
        parts.push_back(
            {prefix + block + std::string(projection_name(projection)) + ".weight", shape.out_features(projection)});
    }
    auto weight = std::make_shared<Weight>(
        parts, in,
        Weight::Options{kernels_ ? WeightLayout::panels : WeightLayout::rows, options_.dtype, options_.device});
    for (std::size_t part = 0; part < parts.size(); ++part)
        places_.emplace(parts[part].name, WeightPlace{weight, part, {parts[part].rows, in}});
    weights_.push_back(weight);
    return weight;
}

LlamaModel::WeightPtr LlamaModel::add_vector(const std::string& name, int size) {
    auto weight = std::make_shared<Weight>(std::vector<Weight::Part>{{name, 1}}, size,
                                           Weight::Options{WeightLayout::rows, torch::kFloat32, options_.device});
    places_.emplace(name, WeightPlace{weight, 0, {size}});
    weights_.push_back(weight);
    return weight;
}

LlamaModel::WeightPtr LlamaModel::add_embedding(const std::string& name, WeightLayout layout) {
    const ModelShape& shape = config_.shape;
    auto weight = std::make_shared<Weight>(std::vector<Weight::Part>{{name, shape.vocab_size}}, shape.hidden_size,
                                           Weight::Options{layout, options_.dtype, options_.device});
    places_.emplace(name, WeightPlace{weight, 0, {shape.vocab_size, shape.hidden_size}});
    weights_.push_back(weight);
    return weight;
}

LlamaModel::Layer LlamaModel::add_layer(int index) {
    const ModelShape& shape = config_.shape;
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    Layer layer;
    layer.attention_norm = add_vector(prefix + "input_layernorm.weight", shape.hidden_size);
    layer.mlp_norm = add_vector(prefix + "post_attention_layernorm.weight", shape.hidden_size);
    layer.qkv = add_matrix(prefix, {Projection::q, Projection::k, Projection::v});
    layer.o = add_matrix(prefix, {Projection::o});
    layer.gate_up = add_matrix(prefix, {Projection::gate, Projection::up});
    layer.down = add_matrix(prefix, {Projection::down});
    const auto bias = [&](const char* block, Projection projection) {
        return add_vector(prefix + block + std::string(projection_name(projection)) + ".bias",
                          shape.out_features(projection));
    };
    if (config_.qkv_bias) {
        layer.q_bias = bias("self_attn.", Projection::q);
        layer.k_bias = bias("self_attn.", Projection::k);
        layer.v_bias = bias("self_attn.", Projection::v);
    }
    if (config_.o_bias) layer.o_bias = bias("self_attn.", Projection::o);
    if (config_.mlp_bias) {
        layer.gate_bias = bias("mlp.", Projection::gate);
        layer.up_bias = bias("mlp.", Projection::up);
        layer.down_bias = bias("mlp.", Projection::down);
    }
    if (config_.qk_norm) {
        layer.q_norm = add_vector(prefix + "self_attn.q_norm.weight", shape.head_dim);
        layer.k_norm = add_vector(prefix + "self_attn.k_norm.weight", shape.head_dim);
    }
    return layer;
}

void LlamaModel::set_audit(std::shared_ptr<BaseAudit> audit) {
    audit_ = std::move(audit);
    config_.shape.checkpoint = audit_->checkpoint();
}

std::uint64_t LlamaModel::weight_bytes() const {
    std::uint64_t bytes = 0;
    for (const WeightPtr& weight : weights_) bytes += weight->bytes();
    return bytes;
}

torch::Tensor LlamaModel::forward(const Batch& batch, KvCache& kv, const ModuleSlots& slots) const {
    const KvStep step = kv.prepare(batch);
    return run(batch, slots, [&](int layer, const auto& q, const auto& k, const auto& v) {
        kv.write(layer, k, v, step);
        return kv.attend(layer, q, step);
    });
}

torch::Tensor LlamaModel::forward_plain(const Batch& batch, const ModuleSlots& slots) const {
    return run(batch, slots, [&](int layer, const auto& q, const auto& k, const auto& v) {
        const int window = config_.shape.layers[static_cast<std::size_t>(layer)].window;
        std::vector<torch::Tensor> outputs;
        for (const BatchSequence& sequence : batch.sequences) {
            TORCH_CHECK(sequence.context == 0, "plain attention needs whole sequences");
            const auto rows = [&](const torch::Tensor& t) { return t.narrow(0, sequence.first_row, sequence.rows); };
            outputs.push_back(plain_attention(rows(q), rows(k), rows(v), config_.shape.head_dim, window));
        }
        return torch::cat(outputs);
    });
}

torch::Tensor LlamaModel::run(const Batch& batch, const ModuleSlots& slots, const Attention& attention) const {
    const auto integers = torch::TensorOptions().dtype(torch::kInt64);
    const torch::Tensor tokens =
        torch::tensor(std::vector<std::int64_t>(batch.tokens.begin(), batch.tokens.end()), integers);
    const torch::Tensor positions =
        torch::tensor(std::vector<std::int64_t>(batch.positions.begin(), batch.positions.end()), integers);
    const auto [cos, sin] = rope_.angles(positions.to(options_.device));
    const Pass pass{cos, sin, slots, slots.plan(batch), attention};

    torch::Tensor x = embedding_->gather(tokens.to(options_.device));  // the residual, [rows, hidden]
    torch::Tensor delta;                                               // what the last block adds to it
    for (int index = 0; index < config_.shape.layer_count(); ++index) {
        const Layer& layer = layers_[static_cast<std::size_t>(index)];
        delta = attention_part(index, math_.add_norm(x, delta, layer.attention_norm->vector(), config_.norm_eps), pass);
        delta = mlp_part(index, math_.add_norm(x, delta, layer.mlp_norm->vector(), config_.norm_eps), pass);
    }
    return math_.add_norm(x, delta, final_norm_->vector(), config_.norm_eps);
}

torch::Tensor LlamaModel::attention_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const torch::Tensor fused = layer.qkv->matmul(x);
    torch::Tensor q = columns(fused, *layer.qkv, 0);
    torch::Tensor k = columns(fused, *layer.qkv, 1);
    torch::Tensor v = columns(fused, *layer.qkv, 2);
    if (layer.q_bias) {
        q = math_.add_bias(q, layer.q_bias->vector());
        k = math_.add_bias(k, layer.k_bias->vector());
        v = math_.add_bias(v, layer.v_bias->vector());
    }
    q = pass.touch(index, Projection::q, x, q);
    k = pass.touch(index, Projection::k, x, k);
    v = pass.touch(index, Projection::v, x, v);
    if (layer.q_norm) {
        q = math_.head_norm(q, layer.q_norm->vector(), config_.norm_eps);
        k = math_.head_norm(k, layer.k_norm->vector(), config_.norm_eps);
    }
    q = math_.rotate(q, pass.cos, pass.sin);
    k = math_.rotate(k, pass.cos, pass.sin);

    const torch::Tensor mixed = pass.attention(index, q, k, v);
    torch::Tensor out = columns(layer.o->matmul(mixed), *layer.o, 0);
    if (layer.o_bias) out = math_.add_bias(out, layer.o_bias->vector());
    return pass.touch(index, Projection::o, mixed, out);
}

torch::Tensor LlamaModel::mlp_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const torch::Tensor fused = layer.gate_up->matmul(x);
    torch::Tensor gate = columns(fused, *layer.gate_up, 0);
    torch::Tensor up = columns(fused, *layer.gate_up, 1);
    if (layer.gate_bias) {
        gate = math_.add_bias(gate, layer.gate_bias->vector());
        up = math_.add_bias(up, layer.up_bias->vector());
    }
    gate = pass.touch(index, Projection::gate, x, gate);
    up = pass.touch(index, Projection::up, x, up);
    const torch::Tensor inner = math_.silu_mul(gate, up);
    torch::Tensor out = columns(layer.down->matmul(inner), *layer.down, 0);
    if (layer.down_bias) out = math_.add_bias(out, layer.down_bias->vector());
    return pass.touch(index, Projection::down, inner, out);
}

torch::Tensor LlamaModel::logits(const torch::Tensor& hidden, const Batch& /*batch*/, const ModuleSlots& /*slots*/,
                                 std::span<const std::int32_t> /*rows*/) const {
    return columns(head_->matmul(hidden), *head_, 0).contiguous();
}

}  // namespace attune
