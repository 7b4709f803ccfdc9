// What is done element by element: output and input terms of projections, and replaced norms.

#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace attune {
namespace {

// y += weight * gain * base, for one row.
void add_gain(float* y, const float* gain, float weight, const float* base, const float* bias, std::int64_t n) {
    if (bias == nullptr) {
        for (std::int64_t i = 0; i < n; ++i) y[i] += weight * gain[i] * base[i];
    } else {
        for (std::int64_t i = 0; i < n; ++i) y[i] += weight * gain[i] * (base[i] + bias[i]);
    }
}

using TouchedRow = std::pair<const PlannedSegment*, int>;

/// Rows of the segments that `acts` on.
template <class Acts>
std::vector<TouchedRow> touched_rows(const SlotPlan& plan, Acts&& acts) {
    std::vector<TouchedRow> rows;
    for (const PlannedSegment& segment : plan.segments) {
        if (!segment.any(acts)) continue;
        for (int row = segment.first; row < segment.first + segment.rows; ++row) rows.emplace_back(&segment, row);
    }
    return rows;
}

}  // namespace

void ModuleSlots::Impl::terms_kernels(std::size_t site, const torch::Tensor& x, torch::Tensor& y, const SlotPlan& plan,
                                      const BaseProduct& base) const {
    const std::int64_t in = x.size(1);
    const std::int64_t out = y.size(1);
    const auto has_gain = [&](const SlotContent& content) { return content.input_gain(site) != SlotContent::kNone; };
    const auto has_output = [&](const SlotContent& content) { return content.output(site) != nullptr; };

    // Rows that read another input get a product of their own; the fused one of the step keeps what all others read.
    const std::vector<TouchedRow> scaled = touched_rows(plan, has_gain);
    torch::Tensor product;  // [scaled, out]
    if (!scaled.empty()) {
        torch::Tensor inputs = torch::empty({static_cast<std::int64_t>(scaled.size()), in}, x.options());
        float* to = inputs.data_ptr<float>();
        for (const auto& [segment, row] : scaled) {
            const float* from = x.data_ptr<float>() + row * x.stride(0);
            std::copy(from, from + in, to);
            for (const PlannedModule& module : segment->modules)
                if (const float* gain = floats(*module.content, module.content->input_gain(site)))
                    add_gain(to, gain, module.weight, from, nullptr, in);
            to += in;
        }
        product = base.multiply(inputs);
    }
    const float* bias = base.bias.defined() ? base.bias.const_data_ptr<float>() : nullptr;
    const std::vector<TouchedRow> rows =
        touched_rows(plan, [&](const SlotContent& content) { return has_gain(content) || has_output(content); });
    run_tasks(static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.size()) * out,
              [&](std::int64_t i) {
                  const auto& [segment, row] = rows[static_cast<std::size_t>(i)];
                  float* to = y.data_ptr<float>() + row * y.stride(0);
                  float* before = scratch(static_cast<std::size_t>(out));
                  std::copy(to, to + out, before);
                  const auto own =
                      std::lower_bound(scaled.begin(), scaled.end(), row,
                                       [](const TouchedRow& touched, int wanted) { return touched.second < wanted; });
                  if (own != scaled.end() && own->second == row) {
                      const float* from = product.const_data_ptr<float>() + (own - scaled.begin()) * product.stride(0);
                      std::copy(from, from + out, to);
                  }
                  for (const PlannedModule& module : segment->modules) {
                      const SlotContent::Output* term = module.content->output(site);
                      if (term == nullptr) continue;
                      if (const float* gain = floats(*module.content, term->gain))
                          add_gain(to, gain, module.weight, before, term->gain_on_bias ? bias : nullptr, out);
                      if (const float* add = floats(*module.content, term->add))
                          for (std::int64_t k = 0; k < out; ++k) to[k] += module.weight * add[k];
                  }
              });
}

torch::Tensor ModuleSlots::Impl::terms_torch(std::size_t site, const torch::Tensor& x, const torch::Tensor& y,
                                             const SlotPlan& plan, const BaseProduct& base) const {
    const auto acts = [&](const SlotContent& content) {
        return content.output(site) != nullptr || content.input_gain(site) != SlotContent::kNone;
    };
    const auto piece = [&](const PlannedSegment& segment, const torch::Tensor& before) {
        torch::Tensor gain;  // [in]
        for (const PlannedModule& module : segment.modules) {
            const int own = module.content->input_gain(site);
            if (own == SlotContent::kNone) continue;
            const torch::Tensor term = values(*module.content, own) * module.weight;
            gain = gain.defined() ? gain + term : term;
        }
        torch::Tensor sum = before.to(torch::kFloat32);
        const torch::Tensor product = sum;
        if (gain.defined())
            sum = base.multiply(x.narrow(0, segment.first, segment.rows).to(torch::kFloat32) * (gain + 1));
        for (const PlannedModule& module : segment.modules) {
            const SlotContent::Output* term = module.content->output(site);
            if (term == nullptr) continue;
            if (term->gain != SlotContent::kNone) {
                const bool with_bias = term->gain_on_bias && base.bias.defined();
                sum = sum + (with_bias ? product + base.bias : product) *
                                (values(*module.content, term->gain) * module.weight);
            }
            if (term->add != SlotContent::kNone) sum = sum + values(*module.content, term->add) * module.weight;
        }
        return sum.to(y.scalar_type());
    };
    return by_segment(y, plan, acts, piece);
}

torch::Tensor ModuleSlots::norm_weight(int layer, NormSite at, const torch::Tensor& weight, std::int64_t rows,
                                       const SlotPlan& plan) const {
    const std::size_t site = SlotContent::norm_site(layer, at);
    if (!plan.norms[site]) return weight;
    const auto acts = [&](const SlotContent& content) { return content.norm_delta(site) != SlotContent::kNone; };
    return Impl::by_segment(weight.unsqueeze(0).expand({rows, -1}), plan, acts,
                            [&](const PlannedSegment& segment, const torch::Tensor& same) {
                                torch::Tensor sum = weight;
                                for (const PlannedModule& module : segment.modules) {
                                    const int delta = module.content->norm_delta(site);
                                    if (delta != SlotContent::kNone)
                                        sum = sum + impl_->values(*module.content, delta) * module.weight;
                                }
                                return sum.unsqueeze(0).expand_as(same);
                            });
}

}  // namespace attune
