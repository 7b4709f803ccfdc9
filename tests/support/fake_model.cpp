#include <torch/torch.h>

#include "support/fake_model.hpp"

#include "engine/engine_impl.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace attune {
namespace {

class FakeModel final : public Model {
public:
    explicit FakeModel(std::shared_ptr<FakeModelKnobs> knobs) : knobs_(std::move(knobs)) {
        shape_.model_type = "llama";
        shape_.hidden_size = 4;
        shape_.intermediate_size = 4;
        shape_.heads = 1;
        shape_.kv_heads = 1;
        shape_.head_dim = 4;
        shape_.vocab_size = 320;
        shape_.max_context = 512;
        shape_.layers.resize(1);
    }

    const ModelShape& shape() const override { return shape_; }

    /// Row: token, next token, 0, 0.
    torch::Tensor forward(const Batch& batch, KvCache& /*kv*/, const ModuleSlots& slots) const override {
        return forward_plain(batch, slots);
    }

    torch::Tensor forward_plain(const Batch& batch, const ModuleSlots& /*slots*/) const override {
        knobs_->rows.push_back(batch.rows());
        if (knobs_->throw_at_forward && (*knobs_->throw_at_forward)-- == 0) {
            knobs_->throw_at_forward.reset();
            throw std::runtime_error("a fault of the test");
        }
        torch::Tensor hidden = torch::zeros({batch.rows(), shape_.hidden_size});
        auto values = hidden.accessor<float, 2>();
        for (std::size_t s = 0; s < static_cast<std::size_t>(batch.segments()); ++s) {
            float step = 1;
            for (auto i = batch.segment_offsets[s]; i < batch.segment_offsets[s + 1]; ++i)
                step += batch.segment_slots[static_cast<std::size_t>(i)].weight;
            for (auto row = batch.segment_rows[s]; row < batch.segment_rows[s + 1]; ++row) {
                const auto token = static_cast<float>(batch.tokens[static_cast<std::size_t>(row)]);
                values[row][0] = token;
                values[row][1] = token + step;
            }
        }
        return hidden;
    }

    torch::Tensor logits(const torch::Tensor& hidden, const Batch& /*batch*/, const ModuleSlots& /*slots*/,
                         std::span<const std::int32_t> /*rows*/) const override {
        const std::int64_t rows = hidden.size(0);
        knobs_->most_logit_rows = std::max(knobs_->most_logit_rows, static_cast<int>(rows));
        torch::Tensor logits = torch::zeros({rows, shape_.vocab_size});
        auto values = logits.accessor<float, 2>();
        const auto states = hidden.accessor<float, 2>();
        for (std::int64_t row = 0; row < rows; ++row) {
            values[row][std::lround(states[row][1]) % shape_.vocab_size] = knobs_->peak;
            if (knobs_->not_finite_after == static_cast<TokenId>(std::lround(states[row][0])))
                values[row][5] = std::numeric_limits<float>::quiet_NaN();
        }
        return logits;
    }

    std::shared_ptr<BaseAudit> audit() const override { return nullptr; }
    std::uint64_t weight_bytes() const override { return 0; }

private:
    ModelShape shape_;
    std::shared_ptr<FakeModelKnobs> knobs_;
};

}  // namespace

std::unique_ptr<Engine> make_fake_engine(std::shared_ptr<FakeModelKnobs> knobs, const EngineOptions& options,
                                         int kv_blocks, std::shared_ptr<const Tokenizer> tokenizer) {
    EngineLayout layout;
    layout.kv_blocks = kv_blocks;
    return make_engine(std::make_unique<FakeModel>(std::move(knobs)), options, layout, std::move(tokenizer));
}

}  // namespace attune
