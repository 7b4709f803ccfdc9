// What works element by element: IA3, trained biases, replaced norms; and whole weights of one layer.

#include "engine/module/site_input.hpp"

#include "engine/files/quote.hpp"

#include <utility>

namespace attune {
namespace {

/// value - base, element by element, for a vector that replaces the base's.
Result<std::vector<float>> change_of(std::vector<float> values, const std::string& name, const BaseValues& base) {
    std::vector<float> own(values.size());
    if (auto read = base.read_rows(name, 0, 1, own); !read) return read.error();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= own[i];
    return values;
}

/// A bias that replaces the base's, under `parameter` of the file.
Result<void> plan_replaced_bias(SiteInput& input, const PlanContext& context, std::string_view parameter) {
    const auto bias = input.need(parameter, {input.out()});
    if (!bias) return bias.error();
    const std::string name = base_tensor(input.site(), "bias", context.base);
    if (context.base_values != nullptr && !context.base_values->has(name))
        return input.refuse_tensor(**bias, "this base has no bias there");
    PlannedPart part;
    part.needs_base = true;
    part.made_bytes = static_cast<std::uint64_t>(input.out()) * kFloatBytes;
    part.build = [bias = *bias, name, site = input.site()](TensorValues& values, const BaseValues* base,
                                                           Module& into) -> Result<void> {
        const auto change = change_of(std::move(values[bias]), name, *base);
        if (!change) return change.error();
        std::vector<float>& add = output_at(into, site).add;
        if (add.empty()) add.resize(change->size());
        for (std::size_t i = 0; i < add.size(); ++i) add[i] += (*change)[i];
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

Result<void> plan_saved_norm(SiteInput& input, const PlanContext& context) {
    const NormSite norm = input.site().norm;
    const bool head = norm == NormSite::query || norm == NormSite::key;
    const auto weight = input.need("weight", {head ? context.base.head_dim : context.base.hidden_size});
    if (!weight) return weight.error();
    const std::string name = base_tensor(input.site(), "weight", context.base);
    if (context.base_values != nullptr && !context.base_values->has(name))
        return input.refuse_tensor(**weight, "this base has no norm there");
    PlannedPart part;
    part.needs_base = true;
    part.build = [weight = *weight, name, norm, layer = input.site().layer](
                     TensorValues& values, const BaseValues* base, Module& into) -> Result<void> {
        auto change = change_of(std::move(values[weight]), name, *base);
        if (!change) return change.error();
        into.norms.push_back({layer, norm, *std::move(change)});
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

Result<void> plan_saved_projection(SiteInput& input, const PlanContext& context) {
    const auto weight = input.need("weight", {input.out(), input.in()});
    if (!weight) return weight.error();
    plan_dense(input, context, [weight = *weight](TensorValues& values) -> RowChange {
        return [saved = std::move(values[weight])](std::int64_t row, std::span<float> into) {
            const float* from = saved.data() + row * static_cast<std::int64_t>(into.size());
            std::copy_n(from, into.size(), into.begin());
        };
    });
    return {};
}

}  // namespace

/// IA3 (arXiv 2205.05638): outputs times l, bias included, or the inputs of a feed-forward layer times l.
Result<void> plan_ia3_site(SiteInput& input, const PlanContext& context) {
    const bool feedforward = context.config.is_feedforward(input.path());
    const auto l = feedforward ? input.need("ia3_l", {1, input.in()}) : input.need("ia3_l", {input.out(), 1});
    if (!l) return l.error();
    PlannedPart part;
    part.build = [l = *l, feedforward, site = input.site()](TensorValues& values, const BaseValues*,
                                                            Module& into) -> Result<void> {
        std::vector<float> gain = std::move(values[l]);
        for (float& value : gain) value -= 1.0F;
        if (feedforward) {
            into.inputs.push_back({site.layer, site.projection, std::move(gain)});
        } else {
            OutputTerm& term = output_at(into, site);
            term.gain = std::move(gain);
            term.gain_on_bias = true;
        }
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

Result<void> plan_bias(SiteInput& input, const PlanContext& context) {
    for (const char* parameter : {"base_layer.bias", "bias"}) {
        if (!input.has(parameter)) continue;
        if (context.config.bias == "none" && input.has("weight")) return {};  // of a whole module: plan_saved's
        if (context.config.bias == "none")
            return input.refuse(input.path() + "." + parameter + " is there, but the config's bias is none");
        if (context.config.bias != "all" && std::string_view(parameter) == "bias")
            return input.refuse(input.path() + "." + parameter + " is there, but the config's bias is " +
                                in_quotes(context.config.bias));
        return plan_replaced_bias(input, context, parameter);
    }
    return {};
}

Result<void> plan_saved(SiteInput& input, const PlanContext& context) {
    if (!input.has("weight")) return {};
    if (input.site().kind == AdapterSite::Kind::norm) return plan_saved_norm(input, context);
    if (auto planned = plan_saved_projection(input, context); !planned) return planned;
    return input.has("bias") ? plan_replaced_bias(input, context, "bias") : Result<void>();
}

}  // namespace attune
