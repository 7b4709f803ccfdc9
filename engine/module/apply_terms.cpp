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

/// Rows of the segments that `wanted(segment)`.
template <class Wanted>
void list_rows(const SlotPlan& plan, std::vector<TouchedRow>& rows, Wanted&& wanted) {
    rows.clear();
    for (const PlannedSegment& segment : plan.segments) {
        if (!wanted(segment)) continue;
        for (int row = segment.first; row < segment.first + segment.rows; ++row) rows.emplace_back(&segment, row);
    }
}

/// Where `row` stands in an ascending list, or its end.
std::vector<TouchedRow>::const_iterator find_row(const std::vector<TouchedRow>& rows, int row) {
    const auto at = std::lower_bound(rows.begin(), rows.end(), row,
                                     [](const TouchedRow& touched, int wanted) { return touched.second < wanted; });
    return at != rows.end() && at->second == row ? at : rows.end();
}

}  // namespace

torch::Tensor ModuleSlots::Impl::scaled_input(std::size_t site, const torch::Tensor& x, const SlotPlan& plan) const {
    const auto acts = [&](const SlotContent& content) { return content.input_gain(site) != SlotContent::kNone; };
    if (!writes(x)) {
        return by_segment(x, plan, acts, [&](const PlannedSegment& segment, const torch::Tensor& rows) {
            torch::Tensor gain = torch::ones({}, rows.options());
            for (const PlannedModule& module : segment.modules) {
                const int own = module.content->input_gain(site);
                if (own != SlotContent::kNone) gain = gain + values(*module.content, own) * module.weight;
            }
            return (rows * gain).to(x.scalar_type());
        });
    }
    torch::Tensor scaled = x.clone(at::MemoryFormat::Contiguous);
    const std::int64_t in = x.size(1);
    for (const PlannedSegment& segment : plan.segments) {
        if (!segment.any(acts)) continue;
        for (std::int64_t row = segment.first; row < segment.first + segment.rows; ++row)
            for (const PlannedModule& module : segment.modules)
                if (const float* gain = floats(*module.content, module.content->input_gain(site)))
                    add_gain(scaled.data_ptr<float>() + row * in, gain, module.weight,
                             x.const_data_ptr<float>() + row * x.stride(0), nullptr, in);
    }
    return scaled;
}

void ModuleSlots::Impl::terms_kernels(std::size_t site, const torch::Tensor& x, torch::Tensor& y, const SlotPlan& plan,
                                      const BaseProduct& base) const {
    const std::int64_t out = y.size(1);
    const auto scales = [&](const SlotContent& content) { return content.input_gain(site) != SlotContent::kNone; };
    const auto acts = [&](const SlotContent& content) { return content.output(site) != nullptr; };
    const auto gains = [&](const SlotContent& content) {
        return acts(content) && content.output(site)->gain != SlotContent::kNone;
    };

    // Output terms read the product of x, the row gets that of the scaled x. One of them is y; rows that need the other
    // too have it made by themselves.
    static thread_local std::vector<TouchedRow> own_buffer;
    static thread_local std::vector<TouchedRow> touched_buffer;
    list_rows(plan, own_buffer, [&](const PlannedSegment& segment) {
        return segment.any(scales) && (!base.of_base_input || segment.any(gains));
    });
    list_rows(plan, touched_buffer, [&](const PlannedSegment& segment) {
        return segment.any(acts) || (segment.any(scales) && !base.of_base_input);
    });
    const std::vector<TouchedRow>& own = own_buffer;  // this thread's, whoever runs the tasks
    const std::vector<TouchedRow>& touched = touched_buffer;
    torch::Tensor product;  // [own, out]
    if (!own.empty()) {
        std::vector<std::int64_t> rows;
        for (const TouchedRow& row : own) rows.push_back(row.second);
        const torch::Tensor& inputs = base.of_base_input ? x : scaled_input(site, x, plan);
        product = base.multiply(inputs.index_select(0, torch::tensor(rows)));
    }
    const float* bias = base.bias.defined() ? base.bias.const_data_ptr<float>() : nullptr;
    run_tasks(static_cast<std::int64_t>(touched.size()), static_cast<std::int64_t>(touched.size()) * out,
              [&](std::int64_t i) {
                  const auto& [segment, row] = touched[static_cast<std::size_t>(i)];
                  float* to = y.data_ptr<float>() + row * y.stride(0);
                  float* before = scratch(static_cast<std::size_t>(out));
                  std::copy(to, to + out, before);
                  if (const auto at = find_row(own, row); at != own.end()) {
                      const float* other = product.const_data_ptr<float>() + (at - own.begin()) * product.stride(0);
                      std::copy(other, other + out, base.of_base_input ? before : to);
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
    const auto scales = [&](const SlotContent& content) { return content.input_gain(site) != SlotContent::kNone; };
    const auto acts = [&](const SlotContent& content) { return content.output(site) != nullptr || scales(content); };
    const auto gains = [&](const SlotContent& content) {
        return content.output(site) != nullptr && content.output(site)->gain != SlotContent::kNone;
    };
    const torch::Tensor scaled = plan.inputs[site] && !base.of_base_input ? scaled_input(site, x, plan) : x;
    const auto piece = [&](const PlannedSegment& segment, const torch::Tensor& rows) {
        torch::Tensor sum = rows.to(torch::kFloat32);
        torch::Tensor product = sum;  // of x itself
        if (segment.any(scales) && (!base.of_base_input || segment.any(gains))) {
            const torch::Tensor other = base.multiply(scaled.narrow(0, segment.first, segment.rows));
            (base.of_base_input ? product : sum) = other.to(torch::kFloat32);
        }
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

torch::Tensor ModuleSlots::Impl::terms_merged(std::size_t site, const torch::Tensor& y, const SlotPlan& plan,
                                              const BaseProduct& base, bool in_place) const {
    const auto on_bias = [&](const SlotContent::Output& term) {
        return term.gain_on_bias && term.gain != SlotContent::kNone && base.bias.defined();
    };
    const auto acts = [&](const SlotContent& content) {
        const SlotContent::Output* term = content.output(site);
        return term != nullptr && (term->add != SlotContent::kNone || on_bias(*term));
    };
    const auto piece = [&](const PlannedSegment& segment, const torch::Tensor& rows) {
        torch::Tensor sum = rows.to(torch::kFloat32);
        for (const PlannedModule& module : segment.modules) {
            if (!acts(*module.content)) continue;
            const SlotContent::Output& term = *module.content->output(site);
            if (on_bias(term)) sum = sum + base.bias * (values(*module.content, term.gain) * module.weight);
            if (term.add != SlotContent::kNone) sum = sum + values(*module.content, term.add) * module.weight;
        }
        return sum.to(y.scalar_type());
    };
    if (!in_place) return by_segment(y, plan, acts, piece);
    for (const PlannedSegment& segment : plan.segments) {
        if (!segment.any(acts)) continue;
        const torch::Tensor rows = y.narrow(0, segment.first, segment.rows);
        rows.copy_(piece(segment, rows));
    }
    return y;
}

torch::Tensor ModuleSlots::base_input(int layer, Projection projection, const torch::Tensor& x,
                                      const SlotPlan& plan) const {
    const std::size_t site = SlotContent::site(layer, projection);
    return plan.inputs[site] ? impl_->scaled_input(site, x, plan) : x;
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
