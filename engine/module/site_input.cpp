#include "engine/module/site_input.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune {
namespace {

// Rows of a base weight that are in memory at a time while a dense change is built.
constexpr std::uint64_t kStagingBytes = 1u << 20;

std::string wanted(std::initializer_list<std::int64_t> shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape)
        text += (text.size() > 1 ? ", " : "") + (extent < 0 ? "r" : std::to_string(extent));
    return text + "]";
}

std::string_view short_name(std::string_view parameter) {
    if (parameter.ends_with(".weight")) parameter.remove_suffix(7);
    return parameter;
}

}  // namespace

const StoredTensor* SiteInput::take(std::string_view parameter) {
    const StoredTensor* tensor = tensors_.find(parameter);
    if (tensor != nullptr) taken_.insert(parameter);
    return tensor;
}

Result<const StoredTensor*> SiteInput::need(std::string_view parameter, std::initializer_list<std::int64_t> shape) {
    const StoredTensor* tensor = take(parameter);
    const std::string name(short_name(parameter));
    if (tensor == nullptr) {
        const std::string_view there = tensors_.parameters.begin()->first;
        return refuse(path() + " has " + std::string(short_name(there)) + ", but no " + name);
    }
    const bool fits = tensor->shape.size() == shape.size() &&
                      std::equal(shape.begin(), shape.end(), tensor->shape.begin(),
                                 [](std::int64_t want, std::int64_t have) { return want < 0 || want == have; });
    if (!fits)
        return refuse(path() + ": " + name + " is " + shape_text(tensor->shape) + ", this base wants " + wanted(shape));
    if (std::find(tensor->shape.begin(), tensor->shape.end(), 0) != tensor->shape.end())
        return refuse(path() + ": its rank is 0");
    return tensor;
}

std::string_view SiteInput::unclaimed() const {
    for (const auto& [parameter, tensor] : tensors_.parameters)
        if (!taken_.contains(parameter)) return tensor->name;
    return {};
}

Error SiteInput::refuse(const std::string& fault) const {
    return make_error(Errc::invalid_module, context_.header.file_name + ": " + fault);
}

Error SiteInput::refuse_tensor(const StoredTensor& tensor, const std::string& fault) const {
    return refuse("tensor " + in_quotes(tensor.name) + ": " + fault);
}

Result<void> SiteInput::check_rank_limit(std::int64_t rank) const {
    if (rank > context_.max_rank)
        return refuse(path() + ": its rank is " + std::to_string(rank) + ", the limit is " +
                      std::to_string(context_.max_rank));
    context_.plan.max_rank = std::max(context_.plan.max_rank, static_cast<int>(rank));
    return {};
}

Result<void> SiteInput::check_rank(std::int64_t rank) const {
    if (auto fits = check_rank_limit(rank); !fits) return fits;
    const auto promised = static_cast<std::int64_t>(context_.config.rank_pattern.lookup(path(), context_.config.rank));
    if (promised != rank)
        return refuse(path() + ": its rank is " + std::to_string(rank) + ", the config says " +
                      std::to_string(promised));
    return {};
}

Result<float> SiteInput::scale(std::int64_t true_rank) const {
    const auto scale = static_cast<float>(context_.config.scale(path(), static_cast<int>(true_rank)));
    if (!std::isfinite(scale)) return refuse(path() + ": its scale is not finite");
    return scale;
}

std::string base_tensor(const AdapterSite& site, std::string_view parameter, const ModelShape& base) {
    const bool tied_head =
        site.kind == AdapterSite::Kind::projection && site.projection == Projection::head && base.tied_embeddings;
    return site_path(tied_head ? AdapterSite{.kind = AdapterSite::Kind::embedding} : site) + "." +
           std::string(parameter);
}

OutputTerm& output_at(Module& module, const AdapterSite& site) {
    const auto key = [](int layer, Projection projection) { return std::pair(layer, projection); };
    const auto at = std::lower_bound(
        module.outputs.begin(), module.outputs.end(), key(site.layer, site.projection),
        [&](const OutputTerm& term, const auto& wanted) { return key(term.layer, term.projection) < wanted; });
    if (at != module.outputs.end() && key(at->layer, at->projection) == key(site.layer, site.projection)) return *at;
    OutputTerm term;
    term.layer = site.layer;
    term.projection = site.projection;
    return *module.outputs.insert(at, std::move(term));
}

LowRankPair dense_pair(const AdapterSite& site, std::int64_t in, std::vector<float> delta) {
    LowRankPair pair;
    pair.layer = site.layer;
    pair.projection = site.projection;
    pair.rank = static_cast<int>(in);
    pair.b = std::move(delta);
    return pair;
}

void plan_dense(const SiteInput& input, const PlanContext& context, std::function<RowChange(TensorValues&)> prepare) {
    const AdapterSite site = input.site();
    const std::int64_t in = input.in();
    const std::int64_t out = input.out();
    PlannedPart part;
    part.needs_base = true;
    part.made_bytes = static_cast<std::uint64_t>(in * out) * kFloatBytes + kStagingBytes;
    part.build = [=, name = base_tensor(site, "weight", context.base)](TensorValues& values, const BaseValues* base,
                                                                       Module& into) -> Result<void> {
        const RowChange change = prepare(values);
        std::vector<float> delta(static_cast<std::size_t>(in * out));
        if (auto read = base->read_rows(name, 0, out, delta); !read) return read;
        std::vector<float> row(static_cast<std::size_t>(in));
        for (std::int64_t o = 0; o < out; ++o) {
            float* weight = delta.data() + o * in;
            std::copy_n(weight, in, row.begin());
            change(o, row);
            for (std::int64_t i = 0; i < in; ++i) weight[i] = row[static_cast<std::size_t>(i)] - weight[i];
        }
        into.pairs.push_back(dense_pair(site, in, std::move(delta)));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
}

}  // namespace attune
