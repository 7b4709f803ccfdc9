// Kinds that are low-rank updates: LoRA with DoRA, AdaLoRA, MiSS, VeRA, LoHa.

#include "engine/module/site_input.hpp"
#include "engine/module/transposed.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune {
namespace {

LowRankPair pair_at(const AdapterSite& site, std::int64_t rank, float scale) {
    LowRankPair pair;
    pair.layer = site.layer;
    pair.projection = site.projection;
    pair.rank = static_cast<int>(rank);
    pair.scale = scale;
    return pair;
}

// Rows of the base weight that are in memory at a time while norms are taken.
constexpr std::int64_t kNormRows = 64;

/// DoRA (arXiv 2402.09353): y = (m / c) * (x W^T + s (x A^T) B^T) with c the norm of each row of W + s B A. As a delta:
/// m / c goes into B, and m / c - 1 is the gain on the base's product.
Result<void> add_magnitude(LowRankPair& pair, const std::vector<float>& magnitude, const std::string& weight,
                           const BaseValues& base, Module& into, const AdapterSite& site) {
    const auto out = static_cast<std::int64_t>(magnitude.size());
    const auto rank = static_cast<std::int64_t>(pair.rank);
    const auto in = static_cast<std::int64_t>(pair.a.size()) / rank;
    std::vector<float> rows(static_cast<std::size_t>(std::min(out, kNormRows) * in));
    OutputTerm& term = output_at(into, site);
    term.gain.resize(magnitude.size());
    for (std::int64_t first = 0; first < out; first += kNormRows) {
        const std::int64_t count = std::min(kNormRows, out - first);
        const std::span<float> chunk(rows.data(), static_cast<std::size_t>(count * in));
        if (auto read = base.read_rows(weight, first, count, chunk); !read) return read;
        for (std::int64_t i = 0; i < count; ++i) {
            float* row = chunk.data() + i * in;
            float* b = pair.b.data() + (first + i) * rank;
            for (std::int64_t k = 0; k < rank; ++k) {
                const float factor = pair.scale * b[k];
                const float* a = pair.a.data() + k * in;
                for (std::int64_t j = 0; j < in; ++j) row[j] += factor * a[j];
            }
            double squares = 0;
            for (std::int64_t j = 0; j < in; ++j) squares += static_cast<double>(row[j]) * row[j];
            const auto at = static_cast<std::size_t>(first + i);
            const auto gain = static_cast<float>(magnitude[at] / std::sqrt(squares));
            if (!std::isfinite(gain))
                return make_error(
                    Errc::invalid_module,
                    site_path(site) + ": a row of the base and its update are zero, which has no direction");
            term.gain[at] = gain - 1.0F;
            for (std::int64_t k = 0; k < rank; ++k) b[k] *= gain;
        }
    }
    return {};
}

}  // namespace

Result<void> plan_lora_site(SiteInput& input, const PlanContext& context) {
    const PeftConfig& config = context.config;
    const auto a = input.need("lora_A.weight", {-1, input.in()});
    if (!a) return a.error();
    const auto b = input.need("lora_B.weight", {input.out(), -1});
    if (!b) return b.error();
    const std::int64_t rank = (*a)->shape[0];
    if ((*b)->shape[1] != rank)
        return input.refuse(input.path() + ": lora_A is " + shape_text((*a)->shape) + ", lora_B is " +
                            shape_text((*b)->shape) + ": two ranks");
    if (auto fits = input.check_rank(rank); !fits) return fits;
    const auto scale = input.scale(rank);
    if (!scale) return scale.error();
    const StoredTensor* magnitude = nullptr;
    if (config.dora) {
        const auto found = input.need("lora_magnitude_vector", {input.out()});
        if (!found) return found.error();
        magnitude = *found;
    } else if (input.has("lora_magnitude_vector")) {
        return input.refuse(input.path() + ": lora_magnitude_vector is there, but use_dora is not set");
    }
    const StoredTensor* bias = nullptr;
    if (config.lora_bias) {
        const auto found = input.need("lora_B.bias", {input.out()});
        if (!found) return found.error();
        bias = *found;
    }
    PlannedPart part;
    part.needs_base = magnitude != nullptr;
    if (magnitude != nullptr)
        part.made_bytes = static_cast<std::uint64_t>(input.out() + kNormRows * input.in()) * kFloatBytes;
    part.build = [=, a = *a, b = *b, scale = *scale, site = input.site(),
                  weight = base_tensor(input.site(), "weight", context.base)](
                     TensorValues& values, const BaseValues* base, Module& into) -> Result<void> {
        LowRankPair pair = pair_at(site, rank, scale);
        pair.a = std::move(values[a]);
        pair.b = std::move(values[b]);
        if (magnitude != nullptr)
            if (auto done = add_magnitude(pair, values[magnitude], weight, *base, into, site); !done) return done;
        if (bias != nullptr) {
            std::vector<float>& add = output_at(into, site).add;
            add = std::move(values[bias]);
            for (float& value : add) value *= scale;
        }
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// AdaLoRA (arXiv 2303.10512): y += (x (A * E)^T B^T) alpha / (r + 1e-5); the 1e-5 is PEFT's.
Result<void> plan_adalora_site(SiteInput& input, const PlanContext& context) {
    const auto a = input.need("lora_A", {-1, input.in()});
    if (!a) return a.error();
    const std::int64_t rank = (*a)->shape[0];
    const auto b = input.need("lora_B", {input.out(), rank});
    if (!b) return b.error();
    const auto e = input.need("lora_E", {rank, 1});
    if (!e) return e.error();
    if (auto fits = input.check_rank_limit(rank); !fits) return fits;
    const double alpha = context.config.alpha_pattern.lookup(input.path(), context.config.alpha);
    const auto scale = static_cast<float>(alpha / (static_cast<double>(rank) + 1e-5));
    if (!std::isfinite(scale)) return input.refuse(input.path() + ": its scale is not finite");
    PlannedPart part;
    part.build = [=, a = *a, b = *b, e = *e, site = input.site()](TensorValues& values, const BaseValues*,
                                                                  Module& into) -> Result<void> {
        LowRankPair pair = pair_at(site, rank, scale);
        pair.a = std::move(values[a]);
        pair.b = std::move(values[b]);
        const auto in = static_cast<std::int64_t>(pair.a.size()) / rank;
        for (std::int64_t k = 0; k < rank; ++k)
            for (std::int64_t j = 0; j < in; ++j)
                pair.a[static_cast<std::size_t>(k * in + j)] *= values[e][static_cast<std::size_t>(k)];
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// MiSS (arXiv 2409.15371): y += S(x) D with S the sums of x's shards; mini repeats D's columns; bat changes W itself:
/// each block W_ac of r x r becomes W_ac + W_ac D_a + D_a.
Result<void> plan_miss_site(SiteInput& input, const PlanContext& context) {
    const PeftConfig& config = context.config;
    const std::int64_t out = input.out();
    const char* name = input.has("bone_block") ? "bone_block" : "miss_block";
    if (config.miss == MissMode::bat) {
        const std::int64_t r = config.rank;
        if (out % r != 0 || input.in() % r != 0)
            return input.refuse(input.path() + ": MiSS bat needs both sides of [" + std::to_string(out) + ", " +
                                std::to_string(input.in()) + "] to be divisible by r " + std::to_string(r));
        const auto d = input.need(name, {out / r, r, r});
        if (!d) return d.error();
        plan_dense(input, context, [d = *d, r](TensorValues& values) -> RowChange {
            return [blocks = std::move(values[d]), r](std::int64_t row, std::span<float> weight) {
                const float* block = blocks.data() + row / r * r * r;  // D_a [r, r]
                std::vector<float> changed(static_cast<std::size_t>(r));
                for (std::size_t c = 0; c < weight.size(); c += static_cast<std::size_t>(r)) {
                    float* part = weight.data() + c;
                    std::copy_n(block + row % r * r, r, changed.begin());
                    for (std::int64_t k = 0; k < r; ++k)
                        for (std::int64_t j = 0; j < r; ++j)
                            changed[static_cast<std::size_t>(j)] += part[k] * block[k * r + j];
                    for (std::int64_t j = 0; j < r; ++j) part[j] += changed[static_cast<std::size_t>(j)];
                }
            };
        });
        return {};
    }
    const bool mini = config.miss == MissMode::mini;
    const std::int64_t columns = mini ? config.mini_rank : out;
    if (out % columns != 0)
        return input.refuse(input.path() + ": its " + std::to_string(out) + " outputs are no multiple of mini_r " +
                            std::to_string(columns));
    const auto d = input.need(name, {-1, columns});
    if (!d) return d.error();
    const std::int64_t rank = (*d)->shape[0];
    if (auto fits = input.check_rank(rank); !fits) return fits;
    if (rank > input.in()) return input.refuse(input.path() + ": its rank is above its inputs");
    PlannedPart part;
    part.made_bytes = static_cast<std::uint64_t>(out * rank) * kFloatBytes;
    part.build = [=, d = *d, site = input.site()](TensorValues& values, const BaseValues*,
                                                  Module& into) -> Result<void> {
        LowRankPair pair = pair_at(site, rank, 1.0F);
        const std::vector<float> narrow = transposed(values[d], static_cast<std::size_t>(rank),
                                                     static_cast<std::size_t>(columns));  // [columns, rank]
        pair.b.reserve(static_cast<std::size_t>(out * rank));
        for (std::int64_t o = 0; o < out; o += columns) pair.b.insert(pair.b.end(), narrow.begin(), narrow.end());
        values[d] = {};
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// VeRA (arXiv 2310.11454): y += lambda_b * (B (lambda_d * (A x))) with A and B shared by all sites and cut to fit.
Result<void> plan_vera_site(SiteInput& input, const PlanContext& context) {
    const auto shared = [&](const char* name) -> Result<const StoredTensor*> {
        const auto found = context.tensors.shared.find(name);
        if (found == context.tensors.shared.end())
            return input.refuse("base_model." + std::string(name) + " is missing");
        if (found->second->shape.size() != 2)
            return input.refuse("base_model." + std::string(name) + " is " + shape_text(found->second->shape));
        return found->second;
    };
    const auto a = shared("vera_A");
    if (!a) return a.error();
    const auto b = shared("vera_B");
    if (!b) return b.error();
    const std::int64_t rank = (*a)->shape[0];
    const std::int64_t a_columns = (*a)->shape[1];
    if (rank < 1 || (*b)->shape[1] != rank || a_columns < input.in() || (*b)->shape[0] < input.out())
        return input.refuse("vera_A is " + shape_text((*a)->shape) + ", vera_B is " + shape_text((*b)->shape) +
                            ": they do not cover " + input.path());
    const auto d = input.need("vera_lambda_d", {rank});
    if (!d) return d.error();
    const auto scales = input.need("vera_lambda_b", {input.out()});
    if (!scales) return scales.error();
    if (auto fits = input.check_rank(rank); !fits) return fits;
    PlannedPart part;
    part.made_bytes = static_cast<std::uint64_t>(rank * (input.in() + input.out())) * kFloatBytes;
    part.build = [=, a = *a, b = *b, d = *d, scales = *scales, in = input.in(), out = input.out(), site = input.site()](
                     TensorValues& values, const BaseValues*, Module& into) -> Result<void> {
        LowRankPair pair = pair_at(site, rank, 1.0F);
        pair.a.reserve(static_cast<std::size_t>(rank * in));
        for (std::int64_t k = 0; k < rank; ++k)
            for (std::int64_t j = 0; j < in; ++j)
                pair.a.push_back(values[a][static_cast<std::size_t>(k * a_columns + j)] *
                                 values[d][static_cast<std::size_t>(k)]);
        pair.b.reserve(static_cast<std::size_t>(rank * out));
        for (std::int64_t o = 0; o < out; ++o)
            for (std::int64_t k = 0; k < rank; ++k)
                pair.b.push_back(values[b][static_cast<std::size_t>(o * rank + k)] *
                                 values[scales][static_cast<std::size_t>(o)]);
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// LoHa (arXiv 2108.06098): W += s (w1_a w1_b) * (w2_a w2_b), element by element. Its rank is at most r r: the rows of
/// the Khatri-Rao product. Above the limit on ranks it is kept as a dense change.
Result<void> plan_loha_site(SiteInput& input, const PlanContext& context) {
    const std::int64_t in = input.in();
    const std::int64_t out = input.out();
    const auto w1_a = input.need("hada_w1_a", {out, -1});
    if (!w1_a) return w1_a.error();
    const std::int64_t r = (*w1_a)->shape[1];
    const auto w1_b = input.need("hada_w1_b", {r, in});
    if (!w1_b) return w1_b.error();
    const auto w2_a = input.need("hada_w2_a", {out, r});
    if (!w2_a) return w2_a.error();
    const auto w2_b = input.need("hada_w2_b", {r, in});
    if (!w2_b) return w2_b.error();
    if (auto fits = input.check_rank(r); !fits) return fits;
    const auto scale = input.scale(r);
    if (!scale) return scale.error();
    const std::int64_t rank = r * r;
    const bool dense = rank > context.max_rank || rank >= in;
    if (!dense) context.plan.max_rank = std::max(context.plan.max_rank, static_cast<int>(rank));
    PlannedPart part;
    part.made_bytes = static_cast<std::uint64_t>(dense ? in * out : rank * (in + out)) * kFloatBytes;
    part.build = [=, w1_a = *w1_a, w1_b = *w1_b, w2_a = *w2_a, w2_b = *w2_b, scale = *scale, site = input.site()](
                     TensorValues& values, const BaseValues*, Module& into) -> Result<void> {
        const float* a1 = values[w1_a].data();
        const float* b1 = values[w1_b].data();
        const float* a2 = values[w2_a].data();
        const float* b2 = values[w2_b].data();
        if (!dense) {
            LowRankPair pair = pair_at(site, rank, scale);
            pair.a.reserve(static_cast<std::size_t>(rank * in));
            pair.b.reserve(static_cast<std::size_t>(rank * out));
            for (std::int64_t i = 0; i < r; ++i)
                for (std::int64_t j = 0; j < r; ++j)
                    for (std::int64_t c = 0; c < in; ++c) pair.a.push_back(b1[i * in + c] * b2[j * in + c]);
            for (std::int64_t o = 0; o < out; ++o)
                for (std::int64_t i = 0; i < r; ++i)
                    for (std::int64_t j = 0; j < r; ++j) pair.b.push_back(a1[o * r + i] * a2[o * r + j]);
            into.pairs.push_back(std::move(pair));
            return {};
        }
        std::vector<float> delta(static_cast<std::size_t>(in * out));
        std::vector<float> left(static_cast<std::size_t>(in));
        std::vector<float> right(static_cast<std::size_t>(in));
        for (std::int64_t o = 0; o < out; ++o) {
            std::fill(left.begin(), left.end(), 0.0F);
            std::fill(right.begin(), right.end(), 0.0F);
            for (std::int64_t i = 0; i < r; ++i)
                for (std::int64_t c = 0; c < in; ++c) {
                    left[static_cast<std::size_t>(c)] += a1[o * r + i] * b1[i * in + c];
                    right[static_cast<std::size_t>(c)] += a2[o * r + i] * b2[i * in + c];
                }
            for (std::int64_t c = 0; c < in; ++c)
                delta[static_cast<std::size_t>(o * in + c)] =
                    left[static_cast<std::size_t>(c)] * right[static_cast<std::size_t>(c)];
        }
        LowRankPair pair = dense_pair(site, in, std::move(delta));
        pair.scale = scale;
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

}  // namespace attune
