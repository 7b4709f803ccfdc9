#include "engine/model/llama_model.hpp"

#include "engine/weights/base_audit.hpp"

#include <algorithm>

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

    /// A norm's weight, or one per row where modules replace it.
    torch::Tensor norm(int layer, NormSite site, const WeightPtr& weight) const {
        return slots.norm_weight(layer, site, weight->vector(), cos.size(0), *plan);
    }
};

LlamaModel::LlamaModel(ModelConfig config, const ModelOptions& options, QuantOf quant_of)
    : config_(std::move(config)),
      options_(options),
      quant_of_(std::move(quant_of)),
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
        const std::string name = prefix + block + std::string(projection_name(projection)) + ".weight";
        parts.push_back({name, shape.out_features(projection), 0, quant_of(name)});
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
    const Quant quant = quant_of(name);
    // Codes lie in panels only.
    if (quant != Quant::none && kernels_) layout = WeightLayout::panels;
    auto weight = std::make_shared<Weight>(std::vector<Weight::Part>{{name, shape.vocab_size, 0, quant}},
                                           shape.hidden_size, Weight::Options{layout, options_.dtype, options_.device});
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

bool LlamaModel::is_quantised() const {
    return std::any_of(weights_.begin(), weights_.end(),
                       [](const WeightPtr& weight) { return weight->is_quantised(); });
}

std::shared_ptr<const BaseValues> LlamaModel::base_values() const {
    return source_values(places_, options_.dtype, head_->part(0).quant);
}

Model::ProjectionWeight LlamaModel::projection_weight(int layer, Projection projection) {
    if (projection == Projection::head)
        return config_.shape.tied_embeddings ? ProjectionWeight{} : ProjectionWeight{head_.get(), 0};
    const Layer& at = layers_[static_cast<std::size_t>(layer)];
    switch (projection) {
        case Projection::q:
            return {at.qkv.get(), 0};
        case Projection::k:
            return {at.qkv.get(), 1};
        case Projection::v:
            return {at.qkv.get(), 2};
        case Projection::o:
            return {at.o.get(), 0};
        case Projection::gate:
            return {at.gate_up.get(), 0};
        case Projection::up:
            return {at.gate_up.get(), 1};
        case Projection::down:
            return {at.down.get(), 0};
        case Projection::head:
            break;
    }
    return {};
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
            const auto rows = [&](const torch::Tensor& t) { return t.narrow(0, sequence.first_row, sequence.rows); };
            const PrefixSegment* prefix = slots.prefix(batch, sequence.first_row);
            TORCH_CHECK(sequence.context == (prefix == nullptr ? 0 : prefix->tokens),
                        "plain attention needs whole sequences");
            // [prefix + rows, kv_heads * head_dim]
            const auto with_prefix = [&](const torch::Tensor& t, const std::vector<float> PrefixSegment::*part) {
                if (prefix == nullptr) return rows(t);
                const std::int64_t values = prefix->tokens * t.size(1);
                // from_blob wants a pointer to non-const; it is only read.
                auto* from = const_cast<float*>((prefix->*part).data()) + layer * values;
                return torch::cat({torch::from_blob(from, {prefix->tokens, t.size(1)}).to(t.device()), rows(t)});
            };
            outputs.push_back(plain_attention(rows(q), with_prefix(k, &PrefixSegment::keys),
                                              with_prefix(v, &PrefixSegment::values), config_.shape.head_dim, window));
        }
        return torch::cat(outputs);
    });
}

torch::Tensor LlamaModel::run(const Batch& batch, const ModuleSlots& slots, const Attention& attention) const {
    const auto integers = torch::TensorOptions().dtype(torch::kInt64);
    // Virtual tokens and those of modules are in no table: any row will do, embed() replaces it.
    std::vector<std::int64_t> ids(batch.tokens.begin(), batch.tokens.end());
    for (std::int64_t& id : ids) id = std::clamp<std::int64_t>(id, 0, config_.shape.vocab_size - 1);
    const torch::Tensor tokens = torch::tensor(ids, integers);
    const torch::Tensor positions =
        torch::tensor(std::vector<std::int64_t>(batch.positions.begin(), batch.positions.end()), integers);
    const auto [cos, sin] = rope_.angles(positions.to(options_.device));
    const Pass pass{cos, sin, slots, slots.plan(batch), attention};

    torch::Tensor x = embedding_->gather(tokens.to(options_.device));  // the residual, [rows, hidden]
    if (slots.touches_embedding(*pass.plan)) x = slots.embed(batch.tokens, x, *pass.plan);
    torch::Tensor delta;  // what the last block adds to it
    for (int index = 0; index < config_.shape.layer_count(); ++index) {
        const Layer& layer = layers_[static_cast<std::size_t>(index)];
        const auto normed = [&](NormSite site, const WeightPtr& weight) {
            return math_.add_norm(x, delta, pass.norm(index, site, weight), config_.norm_eps);
        };
        delta = attention_part(index, normed(NormSite::attention, layer.attention_norm), pass);
        delta = mlp_part(index, normed(NormSite::mlp, layer.mlp_norm), pass);
        if (slots.touches_output(index, *pass.plan)) slots.apply_states(index, x, delta, *pass.plan);
    }
    return math_.add_norm(x, delta, pass.norm(0, NormSite::last, final_norm_), config_.norm_eps);
}

torch::Tensor LlamaModel::finish(int index, Projection projection, const torch::Tensor& x, const torch::Tensor& product,
                                 const FusedPart& part, const Pass& pass) const {
    torch::Tensor y = columns(product, *part.weight, part.index);
    if (pass.slots.touches(index, projection, *pass.plan)) {
        ModuleSlots::BaseProduct base;
        base.of_base_input = part.weight->parts() == 1;
        if (part.bias) base.bias = part.bias->vector();
        base.multiply = [&part](const torch::Tensor& inputs) {
            return columns(part.weight->matmul(inputs), *part.weight, part.index);
        };
        y = pass.slots.apply(index, projection, x, y, *pass.plan, base);
    }
    return part.bias ? math_.add_bias(y, part.bias->vector()) : y;
}

torch::Tensor LlamaModel::attention_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const torch::Tensor fused = layer.qkv->matmul(x);
    torch::Tensor q = finish(index, Projection::q, x, fused, {layer.qkv, 0, layer.q_bias}, pass);
    torch::Tensor k = finish(index, Projection::k, x, fused, {layer.qkv, 1, layer.k_bias}, pass);
    const torch::Tensor v = finish(index, Projection::v, x, fused, {layer.qkv, 2, layer.v_bias}, pass);
    if (layer.q_norm) {
        q = math_.head_norm(q, pass.norm(index, NormSite::query, layer.q_norm), config_.norm_eps);
        k = math_.head_norm(k, pass.norm(index, NormSite::key, layer.k_norm), config_.norm_eps);
    }
    q = math_.rotate(q, pass.cos, pass.sin);
    k = math_.rotate(k, pass.cos, pass.sin);

    const torch::Tensor mixed = pass.attention(index, q, k, v);
    const torch::Tensor read = pass.slots.base_input(index, Projection::o, mixed, *pass.plan);
    return finish(index, Projection::o, mixed, layer.o->matmul(read), {layer.o, 0, layer.o_bias}, pass);
}

torch::Tensor LlamaModel::mlp_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const torch::Tensor fused = layer.gate_up->matmul(x);
    const torch::Tensor gate = finish(index, Projection::gate, x, fused, {layer.gate_up, 0, layer.gate_bias}, pass);
    const torch::Tensor up = finish(index, Projection::up, x, fused, {layer.gate_up, 1, layer.up_bias}, pass);
    const torch::Tensor inner = math_.silu_mul(gate, up);
    const torch::Tensor read = pass.slots.base_input(index, Projection::down, inner, *pass.plan);
    return finish(index, Projection::down, inner, layer.down->matmul(read), {layer.down, 0, layer.down_bias}, pass);
}

torch::Tensor LlamaModel::logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots,
                                 std::span<const std::int32_t> rows) const {
    torch::Tensor logits = columns(head_->matmul(hidden), *head_, 0).contiguous();
    if (!slots.touches_head(batch)) return logits;
    ModuleSlots::BaseProduct base;
    base.multiply = [this](const torch::Tensor& inputs) { return columns(head_->matmul(inputs), *head_, 0); };
    return slots.apply(0, Projection::head, hidden, logits, *slots.plan(batch, rows), base);
}

}  // namespace attune
