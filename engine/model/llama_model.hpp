#pragma once

#include "engine/model/layers.hpp"
#include "engine/model/model.hpp"
#include "engine/model/model_config.hpp"
#include "engine/model/rope.hpp"
#include "engine/model/source_values.hpp"
#include "engine/model/step_buffers.hpp"
#include "engine/model/step_profile.hpp"
#include "engine/weights/weight.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace attune {

/// The decoder that llama, mistral, qwen2 and qwen3 share; they differ in biases, head norms, windows and rotation.
/// Projections that read the same input lie in one weight and are multiplied in one go.
class LlamaModel final : public Model {
public:
    /// How a matrix is held, by its Hugging Face name.
    using QuantOf = std::function<Quant(const std::string&)>;

    /// Makes all weights, zero-filled; places() says how to fill them.
    LlamaModel(ModelConfig config, const ModelOptions& options, QuantOf quant_of = {});

    /// Every tensor the checkpoint must hold, by name.
    const std::map<std::string, WeightPlace>& places() const { return places_; }
    const std::vector<std::shared_ptr<Weight>>& weights() const { return weights_; }
    /// Once, after the weights are filled.
    void set_audit(std::shared_ptr<BaseAudit> audit);

    const ModelShape& shape() const override { return config_.shape; }
    torch::Tensor forward(const Batch& batch, KvCache& kv, const ModuleSlots& slots) const override;
    torch::Tensor forward_plain(const Batch& batch, const ModuleSlots& slots) const override;
    using Model::logits;
    torch::Tensor logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots,
                         std::span<const std::int32_t> rows) const override;
    std::shared_ptr<BaseAudit> audit() const override { return audit_; }
    std::shared_ptr<const BaseValues> base_values() const override;
    std::uint64_t weight_bytes() const override;
    bool is_quantised() const override;
    ProjectionWeight projection_weight(int layer, Projection projection) override;
    void set_profile(StepProfile* profile) override { profile_ = profile; }

private:
    using WeightPtr = std::shared_ptr<Weight>;
    /// Projections that read the same input and lie in one weight, in its order.
    struct Linear {
        WeightPtr weight;
        struct Part {
            Projection projection{};
            WeightPtr bias;  // null without
        };
        std::vector<Part> parts;
        StepPart step_part{};  // the product; what is done to its projections comes next
    };
    struct Layer {
        WeightPtr attention_norm, mlp_norm;  // [hidden]
        Linear qkv, o, gate_up, down;
        WeightPtr q_norm, k_norm;  // [head_dim], qwen3
    };
    /// q, k, v of a step, rotated: [rows, heads * head_dim] -> attention's output, the same shape, in `out` if it
    /// likes.
    using Attention = std::function<torch::Tensor(int layer, const torch::Tensor& q, const torch::Tensor& k,
                                                  const torch::Tensor& v, const torch::Tensor& out)>;
    struct Pass;  // what one forward pass shares between its layers

    Quant quant_of(const std::string& name) const { return quant_of_ ? quant_of_(name) : Quant::none; }
    Linear add_linear(const std::string& prefix, const std::vector<Projection>& projections, StepPart step_part);
    Weight::Options matrix_options(WeightLayout layout) const;
    bool has_bias(Projection projection) const;
    WeightPtr add_vector(const std::string& name, int size);
    WeightPtr add_embedding(const std::string& name, WeightLayout layout);
    Layer add_layer(int index);

    torch::Tensor run(const Batch& batch, const ModuleSlots& slots, const Attention& attention) const;
    torch::Tensor embed(const Batch& batch, const Pass& pass) const;
    /// What a linear layer makes of x: the base's product, what the rows' modules make of it, and the biases.
    StepBuffers::Product project(int index, const Linear& linear, const torch::Tensor& x,
                                 const StepBuffers::Product& out, const Pass& pass) const;
    torch::Tensor attention_part(int index, const torch::Tensor& x, const Pass& pass) const;
    torch::Tensor mlp_part(int index, const torch::Tensor& x, const Pass& pass) const;
    /// [rows, vocab_size], contiguous.
    torch::Tensor head_product(const torch::Tensor& hidden) const;
    void mark(StepPart part) const {
        if (profile_ != nullptr) profile_->mark(part);
    }

    ModelConfig config_;
    ModelOptions options_;
    QuantOf quant_of_;
    bool kernels_;
    LayerMath math_;
    Rope rope_;
    std::map<std::string, WeightPlace> places_;
    std::vector<WeightPtr> weights_;
    WeightPtr embedding_, head_, final_norm_;  // head_ is embedding_ when tied
    std::vector<Layer> layers_;
    std::shared_ptr<BaseAudit> audit_;
    StepProfile* profile_ = nullptr;
    mutable StepBuffers buffers_;  // of the step under way
};

}  // namespace attune
