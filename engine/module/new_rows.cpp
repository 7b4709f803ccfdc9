#include "engine/module/new_rows.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace attune {
namespace {

// The names of a table in a file. PEFT writes the last two beside "weight" where a table was resized and then saved.
constexpr std::string_view kTables[] = {"weight", "base_layer.weight", "token_adapter.base_layer.weight",
                                        "modules_to_save.weight", "original_module.weight"};

/// Where rows of new tokens go: the embedding's or the head's.
using NewRows = std::vector<float> NewTokens::*;
NewRows new_rows_of(const AdapterSite& site) {
    return site.kind == AdapterSite::Kind::embedding ? &NewTokens::input : &NewTokens::head;
}

}  // namespace

TakeRows split_rows(const SiteInput& input, const PlanContext& context, TakeRows known) {
    if (!context.new_tokens) return known;
    return [known = std::move(known), kept = context.new_tokens, rows_of = new_rows_of(input.site()),
            vocab = context.base.vocab_size, width = static_cast<std::size_t>(context.base.hidden_size)](
               std::int64_t first, std::span<float> rows, const BaseValues* base) -> Result<void> {
        const auto count = static_cast<std::int64_t>(rows.size() / width);
        const auto below = static_cast<std::size_t>(std::clamp<std::int64_t>(vocab - first, 0, count));
        if (below > 0)
            if (auto taken = known(first, rows.first(below * width), base); !taken) return taken;
        const std::span<float> beyond = rows.subspan(below * width);
        ((*kept).*rows_of).insert(((*kept).*rows_of).end(), beyond.begin(), beyond.end());
        return {};
    };
}

void set_new_row(std::vector<float>& rows, std::int64_t row, std::span<const float> values) {
    const std::size_t begin = static_cast<std::size_t>(row) * values.size();
    if (begin + values.size() <= rows.size())
        std::copy(values.begin(), values.end(), rows.begin() + static_cast<std::ptrdiff_t>(begin));
}

bool has_table(const AdapterSite& site, const PlanContext& context) {
    const auto found = context.tensors.sites.find(site);
    return found != context.tensors.sites.end() &&
           std::any_of(std::begin(kTables), std::end(kTables),
                       [&](std::string_view name) { return found->second.find(name) != nullptr; });
}

bool ties_saves(const PlanContext& context) { return context.config.tied_saves && context.base.tied_embeddings; }

bool shares_rows(const PlanContext& context) {
    const auto embedding = context.tensors.sites.find(kEmbeddingSite);
    if (!context.base.tied_embeddings || has_table(kHeadSite, context) || embedding == context.tensors.sites.end())
        return false;
    return saved_by(embedding->second.path, context.config) == nullptr || ties_saves(context);
}

void plan_shared_rows(const PlanContext& context) {
    PlannedPart part;
    part.build = [added = context.new_tokens](TensorValues&, const BaseValues*, Module&) -> Result<void> {
        added->head = added->input;
        return {};
    };
    context.plan.parts.push_back(std::move(part));
}

int rows_beyond_base(const AdapterTensors& tensors, const ModelShape& base) {
    std::int64_t rows = base.vocab_size;
    for (const AdapterSite& site : {kEmbeddingSite, kHeadSite}) {
        const auto found = tensors.sites.find(site);
        if (found == tensors.sites.end()) continue;
        for (const std::string_view name : kTables)
            if (const StoredTensor* table = found->second.find(name);
                table != nullptr && table->shape.size() == 2 && table->shape[1] == base.hidden_size)
                rows = std::max(rows, table->shape[0]);
    }
    return static_cast<int>(std::min<std::int64_t>(rows - base.vocab_size, std::numeric_limits<TokenId>::max()));
}

Result<void> plan_new_rows(const PlanContext& context) {
    if (!context.new_tokens) return {};
    const int count = context.new_tokens->count;
    const auto refuse = [&](const std::string& what) {
        return make_error(Errc::invalid_module, context.header.file_name + ": its tables have " +
                                                    std::to_string(count) + " rows more than this base's, but " + what);
    };
    if (!has_table(kEmbeddingSite, context)) return refuse("embed_tokens has none for them");
    if (!has_table(kHeadSite, context) && !shares_rows(context)) return refuse("lm_head has none for them");
    if (count > kMostNewTokens) return refuse("the limit is " + std::to_string(kMostNewTokens));
    // Such an adapter is off before its invocation, where the new tokens would have no row.
    if (!context.config.invocation.empty()) return refuse("new tokens of an aLoRA are not supported");
    PlannedPart part;
    const auto floats = static_cast<std::size_t>(count) * static_cast<std::size_t>(context.base.hidden_size);
    part.made_bytes = 2 * floats * kFloatBytes;
    part.build = [added = context.new_tokens, floats, incomplete = refuse("not all of them")](
                     TensorValues&, const BaseValues*, Module& into) -> Result<void> {
        if (added->input.size() != floats || added->head.size() != floats) return incomplete;
        into.new_tokens = std::move(*added);
        into.new_tokens->input.shrink_to_fit();
        into.new_tokens->head.shrink_to_fit();
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

}  // namespace attune
