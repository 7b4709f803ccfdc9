#include "engine/model/base_merge.hpp"

#include "engine/files/quote.hpp"
#include "engine/weights/weight.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace attune {
namespace {

bool all_finite(std::span<const float> values) {
    // Or-ed bits instead of isfinite(): a loop that is all integers is done in vectors.
    constexpr std::uint32_t kExponent = 0x7F800000U;
    std::uint32_t worst = 0;
    for (const float value : values)
        worst |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
    return worst == 0;
}

/// Nothing of a module that a merge reads may be infinite: it would show only after the first layers were written.
Result<void> check_finite(const Module& module) {
    bool good = true;
    for (const LowRankPair& pair : module.pairs) good = good && all_finite(pair.a) && all_finite(pair.b);
    for (const OutputTerm& term : module.outputs) good = good && all_finite(term.gain);
    for (const InputTerm& term : module.inputs) good = good && all_finite(term.gain);
    if (good) return {};
    return make_error(Errc::invalid_module,
                      "module " + in_quotes(module.id.name) + " holds a value that is not finite");
}

}  // namespace

struct BaseMerge::Site {
    Model::ProjectionWeight place;
    bool is_head = false;
    std::vector<std::pair<const LowRankPair*, float>> pairs;
    using Gains = std::vector<std::pair<std::span<const float>, float>>;
    Gains row_gains;     // [out]
    Gains column_gains;  // [in]

    Result<void> change(bool keep_copy) const {
        const auto rows = static_cast<std::size_t>(place.weight->part(place.part).rows);
        const auto columns = static_cast<std::size_t>(place.weight->columns());
        WeightChange all;
        for (const auto& [pair, weight] : pairs) {
            if (pair->a.empty()) {
                all.shards.push_back({pair->b, pair->rank, weight * pair->scale});
            } else {
                all.rank += pair->rank;
                all.a.insert(all.a.end(), pair->a.begin(), pair->a.end());
            }
        }
        // All pairs' B side by side: one sum over all ranks.
        all.b.resize(rows * static_cast<std::size_t>(all.rank));
        std::size_t column = 0;
        for (const auto& [pair, weight] : pairs) {
            if (pair->a.empty()) continue;
            const auto rank = static_cast<std::size_t>(pair->rank);
            for (std::size_t row = 0; row < rows; ++row) {
                float* to = all.b.data() + row * static_cast<std::size_t>(all.rank) + column;
                for (std::size_t k = 0; k < rank; ++k) to[k] = pair->b[row * rank + k] * (weight * pair->scale);
            }
            column += rank;
        }
        add_gains(row_gains, rows, all.row_gain);
        add_gains(column_gains, columns, all.column_gain);
        return place.weight->change(place.part, keep_copy, all);
    }

    static void add_gains(const Gains& gains, std::size_t size, std::vector<float>& sum) {
        if (!gains.empty()) sum.resize(size);
        for (const auto& [gain, weight] : gains)
            for (std::size_t i = 0; i < size; ++i) sum[i] += weight * gain[i];
    }
};

bool BaseMerge::can_merge(const Module& module) {
    const bool saved_head = std::any_of(module.pairs.begin(), module.pairs.end(), [](const LowRankPair& pair) {
        return pair.projection == Projection::head && pair.a.empty();
    });
    return module.invocation.empty() && !module.head_rows && !saved_head;
}

std::vector<BaseMerge::Site> BaseMerge::sites_of(std::span<const MergedModule> modules) const {
    std::map<std::pair<int, Projection>, Site> sites;
    for (const auto& [module, weight] : modules) {
        const auto at = [&](int layer, Projection projection) -> Site& { return sites[{layer, projection}]; };
        for (const LowRankPair& pair : module->pairs) at(pair.layer, pair.projection).pairs.emplace_back(&pair, weight);
        for (const OutputTerm& term : module->outputs)
            if (!term.gain.empty()) at(term.layer, term.projection).row_gains.emplace_back(term.gain, weight);
        for (const InputTerm& term : module->inputs)
            at(term.layer, term.projection).column_gains.emplace_back(term.gain, weight);
    }
    std::vector<Site> list;
    for (auto& [key, site] : sites) {
        site.place = model_->projection_weight(key.first, key.second);
        site.is_head = key.second == Projection::head;
        if (site.place.weight != nullptr) list.push_back(std::move(site));
    }
    return list;
}

std::uint64_t BaseMerge::touched_bytes(std::span<const MergedModule> modules) const {
    std::uint64_t bytes = 0;
    for (const Site& site : sites_of(modules)) bytes += site.place.weight->part_bytes(site.place.part);
    return bytes;
}

std::uint64_t BaseMerge::copy_bytes() const {
    if (!keep_copies_) return 0;
    std::uint64_t bytes = 0;
    const auto add = [&](int layer, Projection projection) {
        const auto place = model_->projection_weight(layer, projection);
        if (place.weight != nullptr) bytes += place.weight->part_bytes(place.part);
    };
    add(0, Projection::head);
    for (int layer = 0; layer < model_->shape().layer_count(); ++layer)
        for (int projection = 0; projection < kProjections; ++projection)
            add(layer, static_cast<Projection>(projection));
    return bytes;
}

Result<void> BaseMerge::merge(std::span<const MergedModule> modules) {
    TORCH_CHECK(!is_merged(), "one set is merged at a time");
    for (const MergedModule& one : modules) {
        TORCH_CHECK(can_merge(*one.module), "a module that acts on some rows only cannot be merged");
        if (auto good = check_finite(*one.module); !good) return good;
    }
    const torch::NoGradGuard no_grad;
    for (const Site& site : sites_of(modules)) {
        if (auto done = site.change(keep_copies_); !done) {
            if (auto restored = restore(); !restored) return restored;
            return done;
        }
        changed_.push_back(site.place);
        head_merged_ = head_merged_ || site.is_head;
    }
    return {};
}

Result<void> BaseMerge::restore() {
    Result<void> all;
    for (const Model::ProjectionWeight& place : changed_) {
        if (auto done = place.weight->restore(place.part); !done && all) all = done;
    }
    changed_.clear();
    head_merged_ = false;
    return all;
}

}  // namespace attune
