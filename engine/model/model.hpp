#pragma once

#include "attune/result.hpp"
#include "engine/kv/kv_cache.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module_slots.hpp"
#include "engine/schedule/batch.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

class BaseAudit;
class StepProfile;
class Weight;

/// Which matrices are held in fewer bits than `dtype`: those whose columns are whole groups of 32.
enum class WeightBits : std::uint8_t {
    full,    ///< none
    stored,  ///< those that a GGUF file holds quantised: Q8_0, Q4_0, Q4_1 and Q4_K as they are, other kinds as int8
    int8,    ///< all, rounded to the nearest
    int4,    ///< all as int4_min, embedding and head as int8; what is stored in 4 bits stays as it is
};

struct ModelOptions {
    torch::Device device = torch::kCPU;
    torch::Dtype dtype = torch::kFloat32;  ///< how matrices are stored: float32 or bfloat16; vectors stay float32
    bool torch_kernels = false;            ///< the libtorch path on the CPU too: the reference, and what has gradients
    WeightBits bits = WeightBits::full;    ///< on our kernels only; libtorch's path decodes what is `stored`
    bool bf16_activations = false;         ///< on our kernels, see Weight::Options; libtorch's products always do it
};

/// auto, f32, bf16, int8 or int4 as dtype and bits; nothing for another word.
std::optional<std::pair<torch::Dtype, WeightBits>> weight_form(std::string_view word);

/// The base model: immutable weights and the mathematics over them. Activations are float32 throughout. Steps are
/// computed by one thread at a time: their memory is kept for the next one (results are not: those still held are left
/// alone).
class Model {
public:
    virtual ~Model() = default;

    virtual const ModelShape& shape() const = 0;

    /// Hidden rows after the final norm, [rows, hidden_size], float32.
    virtual torch::Tensor forward(const Batch& batch, KvCache& kv, const ModuleSlots& slots) const = 0;

    /// The same without a cache: every sequence starts at position 0 and is whole. With `torch_kernels` the result can
    /// be differentiated in what the slots hold; it is also what the paged path is tested against.
    virtual torch::Tensor forward_plain(const Batch& batch, const ModuleSlots& slots) const = 0;

    /// hidden: [n, hidden_size], row i being the step's row rows[i] (ascending) -> [n, vocab_size], float32. A second
    /// call, so that a sequence may ask for 0..k rows. The step's modules act here too, where they touch the head.
    virtual torch::Tensor logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots,
                                 std::span<const std::int32_t> rows) const = 0;
    /// Of every row of the step.
    torch::Tensor logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots) const {
        std::vector<std::int32_t> rows(static_cast<std::size_t>(batch.rows()));
        std::iota(rows.begin(), rows.end(), 0);
        return logits(hidden, batch, slots, rows);
    }

    /// For the auditor: reads and hashes resident weights from another thread. Lives as long as the model.
    virtual std::shared_ptr<BaseAudit> audit() const = 0;
    /// The base's own values, read again from its files whenever asked; null for a model without files. Outlives the
    /// model.
    virtual std::shared_ptr<const BaseValues> base_values() const { return nullptr; }
    virtual std::uint64_t weight_bytes() const = 0;
    /// Some matrix is: modules are never merged into it.
    virtual bool is_quantised() const { return false; }

    /// Books the time of the steps that follow, until another call; null: no more.
    virtual void set_profile(StepProfile* /*profile*/) {}

    /// Where a projection's matrix lies.
    struct ProjectionWeight {
        Weight* weight = nullptr;
        std::size_t part = 0;
    };
    /// For merging. Null where it cannot be changed in place: a head that is the embedding too, a model without
    /// weights. `layer` of the head: 0.
    virtual ProjectionWeight projection_weight(int /*layer*/, Projection /*projection*/) { return {}; }
};

/// Reads a Hugging Face folder (config.json, model.safetensors or its index) or a GGUF file, whose quantised tensors
/// are decoded into `dtype` unless `bits` keeps them. Errors name the key or tensor at fault as the file calls it.
Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, const ModelOptions& options);

}  // namespace attune
