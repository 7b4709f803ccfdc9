// What is done element by element: output and input terms of projections, and replaced norms.

#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace attune {
namespace {

/// A row and all that its modules do to it at one site.
struct TouchedRow {
    int row = 0;
    std::span<const PlannedTerm> terms;
};

/// Where `row` stands in an ascending list, or its end.
std::vector<TouchedRow>::const_iterator find_row(const std::vector<TouchedRow>& rows, int row) {
    const auto at = std::lower_bound(rows.begin(), rows.end(), row,
                                     [](const TouchedRow& touched, int wanted) { return touched.row < wanted; });
    return at != rows.end() && at->row == row ? at : rows.end();
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
    const std::int64_t in = x.size(1);
    const torch::Tensor scaled =
        scaled_rows.at(site == 0 ? kProjections : (site - 1) % kProjections).rows(x.size(0), in);
    for (std::int64_t row = 0; row < x.size(0); ++row)
        std::copy_n(x.const_data_ptr<float>() + row * x.stride(0), in, scaled.mutable_data_ptr<float>() + row * in);
    for (const PlannedSegment& segment : plan.segments) {
        if (!segment.any(acts)) continue;
        for (std::int64_t row = segment.first; row < segment.first + segment.rows; ++row)
            for (const PlannedModule& module : segment.modules)
                if (const float* gain = floats(*module.content, module.content->input_gain(site)))
                    lora_kernels().add_gain(scaled.mutable_data_ptr<float>() + row * in, gain, module.weight,
                                            x.const_data_ptr<float>() + row * x.stride(0), nullptr,
                                            static_cast<int>(in));
    }
    return scaled;
}

void ModuleSlots::Impl::terms_kernels(std::size_t site, const torch::Tensor& x, const torch::Tensor& y,
                                      const SlotPlan& plan, const BaseProduct& base) const {
    // Output terms read the product of x, the row gets that of the scaled x. One of them is y; rows that need the other
    // too have it made by themselves.
    static thread_local std::vector<TouchedRow> own_buffer;
    static thread_local std::vector<TouchedRow> touched_buffer;
    own_buffer.clear();
    touched_buffer.clear();
    for (auto left = plan.site_terms.at(site); !left.empty();) {
        const PlannedSegment& segment = plan.segments[left.front().segment];
        std::size_t count = 0;
        bool scales = false;
        bool gains = false;
        bool acts = false;
        for (; count < left.size() && left[count].segment == left.front().segment; ++count) {
            scales = scales || left[count].input != nullptr;
            gains = gains || left[count].gain != nullptr;
            acts = acts || left[count].gain != nullptr || left[count].add != nullptr;
        }
        for (int row = segment.first; row < segment.first + segment.rows; ++row) {
            if (scales && (!base.of_base_input || gains)) own_buffer.push_back({row, left.first(count)});
            if (acts || (scales && !base.of_base_input)) touched_buffer.push_back({row, left.first(count)});
        }
        left = left.subspan(count);
    }
    const std::vector<TouchedRow>& own = own_buffer;  // this thread's, whoever runs the tasks
    const std::vector<TouchedRow>& touched = touched_buffer;
    torch::Tensor product;  // [own, out]
    if (!own.empty()) {
        std::vector<std::int64_t> rows;
        for (const TouchedRow& row : own) rows.push_back(row.row);
        const torch::Tensor& inputs = base.of_base_input ? x : scaled_input(site, x, plan);
        product = base.multiply(inputs.index_select(0, torch::tensor(rows)));
    }
    const float* bias = base.bias.defined() ? base.bias.const_data_ptr<float>() : nullptr;
    const std::int64_t out = y.size(1);
    const auto add_gain = lora_kernels().add_gain;
    run_tasks(static_cast<std::int64_t>(touched.size()), static_cast<std::int64_t>(touched.size()) * out,
              [&](std::int64_t i) {
                  const auto& [row, terms] = touched[static_cast<std::size_t>(i)];
                  float* to = y.mutable_data_ptr<float>() + row * y.stride(0);
                  // All terms read the product as it was; a single one may read it where it writes.
                  const float* before = to;
                  const auto at = find_row(own, row);
                  if (terms.size() > 1 || at != own.end()) {
                      float* copy = scratch(static_cast<std::size_t>(out));
                      std::copy(to, to + out, copy);
                      before = copy;
                      if (at != own.end()) {
                          const float* other = product.const_data_ptr<float>() + (at - own.begin()) * product.stride(0);
                          std::copy(other, other + out, base.of_base_input ? copy : to);
                      }
                  }
                  for (const PlannedTerm& term : terms) {
                      if (term.gain != nullptr)
                          add_gain(to, term.gain, term.weight, before, term.gain_on_bias ? bias : nullptr,
                                   static_cast<int>(out));
                      if (term.add != nullptr)
                          for (std::int64_t k = 0; k < out; ++k) to[k] += term.weight * term.add[k];
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

torch::Tensor ModuleSlots::Impl::norm_kernels(std::size_t site, const torch::Tensor& weight, const torch::Tensor& all,
                                              const SlotPlan& plan) const {
    const std::int64_t n = weight.size(0);
    float* to = all.mutable_data_ptr<float>();
    for (std::int64_t row = 0; row < all.size(0); ++row) std::copy_n(weight.const_data_ptr<float>(), n, to + row * n);
    for (const PlannedSegment& segment : plan.segments)
        for (const PlannedModule& module : segment.modules) {
            const float* delta = floats(*module.content, module.content->norm_delta(site));
            if (delta == nullptr) continue;
            for (std::int64_t row = segment.first; row < segment.first + segment.rows; ++row)
                for (std::int64_t k = 0; k < n; ++k) to[row * n + k] += module.weight * delta[k];
        }
    return all;
}

torch::Tensor ModuleSlots::norm_weight(int layer, NormSite at, const torch::Tensor& weight, std::int64_t rows,
                                       const SlotPlan& plan) const {
    const std::size_t site = SlotContent::norm_site(layer, at);
    if (!plan.norms[site]) return weight;
    if (impl_->writes(weight)) {
        RowBuffer& buffer = impl_->norm_rows.at(static_cast<std::size_t>(at));
        return impl_->norm_kernels(site, weight, buffer.rows(rows, weight.size(0)), plan);
    }
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
