#pragma once

#include "engine/module/adapter_plan.hpp"
#include "engine/module/adapter_tensors.hpp"

#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace attune {

/// What planning an adapter works on: the config and the base it is checked against, the plan that grows.
struct PlanContext {
    const SafetensorsHeader& header;
    const PeftConfig& config;
    const ModelShape& base;
    int max_rank;
    const BaseValues* base_values;  ///< may be null
    const AdapterTensors& tensors;
    AdapterPlan& plan;
    /// What the file's tables hold beyond the base's rows, while it is gathered; null where they are the base's size.
    std::shared_ptr<NewTokens> new_tokens;

    /// Rows of the file's tables.
    std::int64_t table_rows() const { return base.vocab_size + (new_tokens ? new_tokens->count : 0); }
};

/// One site's tensors while they are being claimed: what nobody takes is refused.
class SiteInput {
public:
    SiteInput(const SiteTensors& tensors, const PlanContext& context) : tensors_(tensors), context_(context) {}

    const AdapterSite& site() const { return tensors_.site; }
    const std::string& path() const { return tensors_.path; }  ///< the file's, what patterns match
    std::int64_t in() const { return context_.base.in_features(site().projection); }
    std::int64_t out() const { return context_.base.out_features(site().projection); }

    bool has(std::string_view parameter) const { return tensors_.find(parameter) != nullptr; }
    bool has_any() const { return !tensors_.parameters.empty(); }
    /// Claims a tensor; null when it is not there.
    const StoredTensor* take(std::string_view parameter);
    /// Claims a tensor that must be there, of this shape; -1 is any extent of at least 1, written as r in messages.
    Result<const StoredTensor*> need(std::string_view parameter, std::initializer_list<std::int64_t> shape);
    /// The name of a tensor that nobody took; empty when all are.
    std::string_view unclaimed() const;

    Error refuse(const std::string& fault) const;
    /// refuse() with the tensor's full name.
    Error refuse_tensor(const StoredTensor& tensor, const std::string& fault) const;
    /// The rank is within the limit; the plan keeps the largest.
    Result<void> check_rank_limit(std::int64_t rank) const;
    /// The same, and it is what the config says.
    Result<void> check_rank(std::int64_t rank) const;
    /// alpha / r of this site, finite.
    Result<float> scale(std::int64_t true_rank) const;

private:
    const SiteTensors& tensors_;
    const PlanContext& context_;
    std::set<std::string_view> taken_;
};

/// Each claims what its kind keeps at a projection (or the head) and adds its part to the plan.
Result<void> plan_lora_site(SiteInput& input, const PlanContext& context);
Result<void> plan_adalora_site(SiteInput& input, const PlanContext& context);
Result<void> plan_miss_site(SiteInput& input, const PlanContext& context);
Result<void> plan_vera_site(SiteInput& input, const PlanContext& context);
Result<void> plan_loha_site(SiteInput& input, const PlanContext& context);
Result<void> plan_lokr_site(SiteInput& input, const PlanContext& context);
Result<void> plan_oft_site(SiteInput& input, const PlanContext& context);
Result<void> plan_boft_site(SiteInput& input, const PlanContext& context);
Result<void> plan_ia3_site(SiteInput& input, const PlanContext& context);

/// Embedding LoRA, new tokens, the copies of the base's tables that PEFT saves beside them.
Result<void> plan_embedding(SiteInput& input, const PlanContext& context);
/// The head's table: among modules_to_save, or a copy of the base's.
Result<void> plan_head_table(SiteInput& input, const PlanContext& context);
/// PEFT saves both tables whole when they were resized for new tokens: how many rows of the file's largest lie
/// beyond the base's.
int rows_beyond_base(const AdapterTensors& tensors, const ModelShape& base);
/// Moves what was gathered of them into the module, after all sites.
Result<void> plan_new_rows(const PlanContext& context);
/// Whole modules (modules_to_save) and trained biases, wherever they are.
Result<void> plan_saved(SiteInput& input, const PlanContext& context);
Result<void> plan_bias(SiteInput& input, const PlanContext& context);
/// The one tensor of prefix tuning, prompt tuning and P-tuning.
Result<void> plan_prompt(const PlanContext& context);

// ---- what the kinds share

/// The name of the base's tensor at a site: "model.layers.0.self_attn.q_proj.weight"; the embedding for a tied head.
std::string base_tensor(const AdapterSite& site, std::string_view parameter, const ModelShape& base);

/// The output term of a site, added when it is not there yet.
OutputTerm& output_at(Module& module, const AdapterSite& site);

/// A change of the whole weight, [out, in], as a pair.
LowRankPair dense_pair(const AdapterSite& site, std::int64_t in, std::vector<float> delta);

/// Turns one row of the base's weight into the adapted row, in place; `row` is its number.
using RowChange = std::function<void(std::int64_t row, std::span<float> values)>;

/// Adds a part that needs the site's base weight W: a pair of W' - W. `prepare` is called once, when the adapter's
/// values are there; what it makes is called for every row.
void plan_dense(const SiteInput& input, const PlanContext& context, std::function<RowChange(TensorValues&)> prepare);

/// The entry of modules_to_save that chooses this path: PEFT looks at the bare end of it, without a dot.
const std::string* saved_by(std::string_view path, const PeftConfig& config);

inline constexpr std::uint64_t kFloatBytes = sizeof(float);

}  // namespace attune
