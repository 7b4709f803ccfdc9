#include "engine/model/llama_model.hpp"

#include "engine/weights/base_audit.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace attune {

namespace {

/// A projection's columns within a fused result.
torch::Tensor columns(const torch::Tensor& y, const Weight& weight, std::size_t part) {
    if (weight.parts() == 1 && weight.part(0).rows == y.size(1)) return y;
    return y.narrow(1, weight.part(part).first_output, weight.part(part).rows);
}

StepPart after(StepPart part) { return static_cast<StepPart>(static_cast<int>(part) + 1); }

bool is_attention(Projection projection) {
    return projection == Projection::q || projection == Projection::k || projection == Projection::v ||
           projection == Projection::o;
}

}  // namespace

/// What one forward pass shares between its layers.
struct LlamaModel::Pass {
    const ModuleSlots& slots;
    std::shared_ptr<const SlotPlan> plan;
    const Attention& attention;
    torch::Tensor cos = {}, sin = {};  // [rows, head_dim / 2]

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

Weight::Options LlamaModel::matrix_options(WeightLayout layout) const {
    return {.layout = layout,
            .dtype = options_.dtype,
            .device = options_.device,
            .bf16_activations = options_.bf16_activations};
}

LlamaModel::Linear LlamaModel::add_linear(const std::string& prefix, const std::vector<Projection>& projections,
                                          StepPart step_part) {
    const ModelShape& shape = config_.shape;
    const std::int64_t in = shape.in_features(projections.front());
    const auto name_of = [&](Projection projection, const char* what) {
        const std::string block = is_attention(projection) ? "self_attn." : "mlp.";
        return prefix + block + std::string(projection_name(projection)) + what;
    };
    std::vector<Weight::Part> parts;
    for (const Projection projection : projections) {
        const std::string name = name_of(projection, ".weight");
        parts.push_back({name, shape.out_features(projection), 0, quant_of(name)});
    }
    auto weight =
        std::make_shared<Weight>(parts, in, matrix_options(kernels_ ? WeightLayout::panels : WeightLayout::rows));
    for (std::size_t part = 0; part < parts.size(); ++part)
        places_.emplace(parts[part].name, WeightPlace{weight, part, {parts[part].rows, in}});
    weights_.push_back(weight);
    Linear linear{weight, {}, step_part};
    for (const Projection projection : projections)
        linear.parts.push_back(
            {projection, has_bias(projection) ? add_vector(name_of(projection, ".bias"), shape.out_features(projection))
                                              : nullptr});
    return linear;
}

bool LlamaModel::has_bias(Projection projection) const {
    if (projection == Projection::o) return config_.o_bias;
    return is_attention(projection) ? config_.qkv_bias : config_.mlp_bias;
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
                                           shape.hidden_size, matrix_options(layout));
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
    layer.qkv = add_linear(prefix, {Projection::q, Projection::k, Projection::v}, StepPart::qkv);
    layer.o = add_linear(prefix, {Projection::o}, StepPart::o);
    layer.gate_up = add_linear(prefix, {Projection::gate, Projection::up}, StepPart::gate_up);
    layer.down = add_linear(prefix, {Projection::down}, StepPart::down);
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
    for (const Linear* linear : {&at.qkv, &at.o, &at.gate_up, &at.down})
        for (std::size_t part = 0; part < linear->parts.size(); ++part)
            if (linear->parts[part].projection == projection) return {linear->weight.get(), part};
    return {};
}

torch::Tensor LlamaModel::forward(const Batch& batch, KvCache& kv, const ModuleSlots& slots) const {
    KvStep& step = buffers_.kv;
    kv.prepare(batch, step);
    const auto paged = [&](int layer, const auto& q, const auto& k, const auto& v, const auto& out) {
        kv.write(layer, k, v, step);
        return kv.attend(layer, q, step, out);
    };
    return run(batch, slots, std::cref(paged));
}

torch::Tensor LlamaModel::forward_plain(const Batch& batch, const ModuleSlots& slots) const {
    return run(batch, slots, [&](int layer, const auto& q, const auto& k, const auto& v, const auto&) {
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
    if (profile_ != nullptr) profile_->begin();
    Pass pass{slots, slots.plan(batch), attention};
    if (kernels_) {
        const Layer& layer = layers_.front();
        buffers_.fit(batch.rows(), config_.shape, *layer.qkv.weight, *layer.o.weight, *layer.gate_up.weight,
                     *layer.down.weight);
        pass.cos = buffers_.cos;
        pass.sin = buffers_.sin;
        rope_.angles(batch.positions, pass.cos.mutable_data_ptr<float>(), pass.sin.mutable_data_ptr<float>());
    } else {
        const std::vector<std::int64_t> positions(batch.positions.begin(), batch.positions.end());
        std::tie(pass.cos, pass.sin) = rope_.angles(torch::tensor(positions, torch::kInt64).to(options_.device));
    }
    mark(StepPart::plan);
    torch::Tensor x = embed(batch, pass);  // the residual, [rows, hidden]
    mark(StepPart::embed);
    torch::Tensor delta;  // what the last block adds to it
    for (int index = 0; index < config_.shape.layer_count(); ++index) {
        const Layer& layer = layers_[static_cast<std::size_t>(index)];
        const auto normed = [&](NormSite site, const WeightPtr& weight) {
            torch::Tensor out =
                math_.add_norm(x, delta, pass.norm(index, site, weight), config_.norm_eps, buffers_.normed);
            mark(StepPart::norm);
            return out;
        };
        delta = attention_part(index, normed(NormSite::attention, layer.attention_norm), pass);
        delta = mlp_part(index, normed(NormSite::mlp, layer.mlp_norm), pass);
        if (slots.touches_output(index, *pass.plan)) slots.apply_states(index, x, delta, *pass.plan);
        mark(StepPart::states);
    }
    const torch::Tensor out =
        kernels_ ? buffers_.hidden.result(batch.rows(), config_.shape.hidden_size) : torch::Tensor();
    const torch::Tensor hidden =
        math_.add_norm(x, delta, pass.norm(0, NormSite::last, final_norm_), config_.norm_eps, out);
    mark(StepPart::norm);
    return hidden;
}

torch::Tensor LlamaModel::embed(const Batch& batch, const Pass& pass) const {
    // Virtual tokens and those of modules are in no table: any row will do, slots.embed() replaces it.
    std::vector<std::int32_t>& ids = buffers_.tokens;
    ids.resize(batch.tokens.size());
    std::transform(batch.tokens.begin(), batch.tokens.end(), ids.begin(),
                   [&](TokenId id) { return std::clamp<std::int32_t>(id, 0, config_.shape.vocab_size - 1); });
    torch::Tensor x = buffers_.x;
    if (kernels_) {
        embedding_->gather(ids, x.mutable_data_ptr<float>());
    } else {
        const std::vector<std::int64_t> wide(ids.begin(), ids.end());
        x = embedding_->gather(torch::tensor(wide, torch::kInt64).to(options_.device));
    }
    return pass.slots.touches_embedding(*pass.plan) ? pass.slots.embed(batch.tokens, x, *pass.plan) : x;
}

StepBuffers::Product LlamaModel::project(int index, const Linear& linear, const torch::Tensor& x,
                                         const StepBuffers::Product& out, const Pass& pass) const {
    const Weight& weight = *linear.weight;
    const bool fused = linear.parts.size() > 1;
    const torch::Tensor read = fused ? x : pass.slots.base_input(index, linear.parts.front().projection, x, *pass.plan);
    StepBuffers::Product made = out;
    std::array<ModuleSlots::Product, 3> touched;
    std::size_t count = 0;
    for (std::size_t part = 0; part < linear.parts.size(); ++part) {
        const auto& [projection, bias] = linear.parts[part];
        if (!pass.slots.touches(index, projection, *pass.plan)) continue;
        ModuleSlots::Product& product = touched.at(count++);
        product.projection = projection;
        product.y = &made.part.at(part);
        product.base.of_base_input = !fused;
        if (bias) product.base.bias = bias->vector();
        product.base.multiply = [&weight, part](const torch::Tensor& inputs) {
            return columns(weight.matmul(inputs), weight, part);
        };
    }
    const std::span<const ModuleSlots::Product> products(touched.data(), count);
    ReadAhead& ahead = buffers_.ahead;
    ahead.clear();
    if (kernels_) pass.slots.add_reads(index, products, *pass.plan, ahead);
    made.whole = weight.matmul(read, out.whole, &ahead);
    for (std::size_t part = 0; part < linear.parts.size() && !kernels_; ++part)
        made.part.at(part) = columns(made.whole, weight, part);
    mark(linear.step_part);
    if (count > 0) pass.slots.apply(index, products, x, *pass.plan);
    for (std::size_t part = 0; part < linear.parts.size(); ++part)
        if (const WeightPtr& bias = linear.parts[part].bias)
            made.part.at(part) = math_.add_bias(made.part.at(part), bias->vector());
    mark(after(linear.step_part));
    return made;
}

torch::Tensor LlamaModel::attention_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    auto [q, k, v] = project(index, layer.qkv, x, buffers_.qkv, pass).part;
    if (layer.q_norm) {
        q = math_.head_norm(q, pass.norm(index, NormSite::query, layer.q_norm), config_.norm_eps);
        k = math_.head_norm(k, pass.norm(index, NormSite::key, layer.k_norm), config_.norm_eps);
    }
    q = math_.rotate(q, pass.cos, pass.sin);
    k = math_.rotate(k, pass.cos, pass.sin);
    mark(StepPart::rotate);
    const torch::Tensor mixed = pass.attention(index, q, k, v, buffers_.mixed);
    mark(StepPart::attention);
    return project(index, layer.o, mixed, buffers_.o, pass).part[0];
}

torch::Tensor LlamaModel::mlp_part(int index, const torch::Tensor& x, const Pass& pass) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    torch::Tensor inner = buffers_.inner;
    if (kernels_ && !config_.mlp_bias && !pass.slots.touches(index, Projection::gate, *pass.plan) &&
        !pass.slots.touches(index, Projection::up, *pass.plan)) {
        // Nothing comes between: the thread that has made some columns of both goes on with them.
        const StepBuffers::Product& made = buffers_.gate_up;
        const auto activate = [&](std::int64_t first, std::int64_t last) {
            LayerMath::silu_mul_columns(made.part[0], made.part[1], first, last, inner);
        };
        layer.gate_up.weight->matmul(x, made.whole, std::cref(activate));
        mark(StepPart::gate_up);
    } else {
        const auto [gate, up, none] = project(index, layer.gate_up, x, buffers_.gate_up, pass).part;
        inner = math_.silu_mul(gate, up, buffers_.inner);
        mark(StepPart::activation);
    }
    return project(index, layer.down, inner, buffers_.down, pass).part[0];
}

torch::Tensor LlamaModel::logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots,
                                 std::span<const std::int32_t> rows) const {
    if (profile_ != nullptr) profile_->begin();
    torch::Tensor logits = head_product(hidden);
    mark(StepPart::head);
    if (!slots.touches_head(batch)) return logits;
    ModuleSlots::BaseProduct base;
    base.multiply = [this](const torch::Tensor& inputs) { return columns(head_->matmul(inputs), *head_, 0); };
    logits = slots.apply(0, Projection::head, hidden, logits, *slots.plan(batch, rows), base);
    mark(StepPart::modules_head);
    return logits;
}

torch::Tensor LlamaModel::head_product(const torch::Tensor& hidden) const {
    if (!kernels_) return columns(head_->matmul(hidden), *head_, 0).contiguous();
    const std::int64_t rows = hidden.size(0);
    const torch::Tensor out = buffers_.logits.result(rows, config_.shape.vocab_size);
    if (head_->outputs() == config_.shape.vocab_size) return head_->matmul(hidden, out);
    const torch::Tensor padded = head_->matmul(hidden, buffers_.padded_logits.rows(rows, head_->outputs()));
    for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n(padded.const_data_ptr<float>() + row * head_->outputs(), config_.shape.vocab_size,
                    out.mutable_data_ptr<float>() + row * config_.shape.vocab_size);
    return out;
}

}  // namespace attune
