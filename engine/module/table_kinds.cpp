// What changes the tables of tokens: embedding LoRA, new tokens, saved embeddings and heads.

#include "engine/module/new_rows.hpp"
#include "engine/module/transposed.hpp"

#include "engine/files/hash.hpp"
#include "engine/files/quote.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace attune {
namespace {

// A table this far from the base's (relative, over all values) is another base's, not a rounded copy.
constexpr double kSameTable = 0.2;

EmbeddingTerm& embedding_of(Module& module) {
    if (!module.embedding) module.embedding.emplace();
    return *module.embedding;
}

HeadRows& head_of(Module& module) {
    if (!module.head_rows) module.head_rows.emplace();
    return *module.head_rows;
}

/// What the LoRA does to new tokens becomes a part of their rows; its own A ends where the base's table does.
void add_to_new_rows(EmbeddingTerm& term, std::size_t own, NewTokens& added) {
    const auto rank = static_cast<std::size_t>(term.rank);
    const std::size_t hidden = term.b.size() / rank;
    for (std::size_t row = 0; row < added.input.size() / hidden; ++row)
        for (std::size_t i = 0; i < hidden; ++i) {
            const float* a = term.a.data() + own + row * rank;
            const float* b = term.b.data() + i * rank;
            added.input[row * hidden + i] += term.scale * std::inner_product(a, a + rank, b, 0.0F);
        }
    term.a.resize(own);
    term.a.shrink_to_fit();
}

Result<void> plan_embedding_lora(SiteInput& input, const PlanContext& context) {
    const std::int64_t vocab = context.base.vocab_size;
    const std::int64_t hidden = context.base.hidden_size;
    const auto a = input.need("lora_embedding_A", {-1, context.table_rows()});
    if (!a) return a.error();
    const std::int64_t rank = (*a)->shape[0];
    const auto b = input.need("lora_embedding_B", {hidden, rank});
    if (!b) return b.error();
    if (context.config.dora) return input.refuse(input.path() + ": DoRA on embeddings is not supported");
    if (auto fits = input.check_rank(rank); !fits) return fits;
    const auto scale = input.scale(rank);
    if (!scale) return scale.error();
    const bool tied = ties_saves(context);
    if (tied && context.new_tokens)
        return input.refuse(input.path() + ": ensure_weight_tying on resized tables is not supported");
    PlannedPart part;
    part.made_bytes =
        static_cast<std::uint64_t>(rank * context.table_rows() + (tied ? rank * (vocab + hidden) : 0)) * kFloatBytes;
    part.build = [=, a = *a, b = *b, scale = *scale, added = context.new_tokens](
                     TensorValues& values, const BaseValues*, Module& into) -> Result<void> {
        EmbeddingTerm& term = embedding_of(into);
        term.rank = static_cast<int>(rank);
        term.scale = scale;
        term.b = std::move(values[b]);
        const auto rows = static_cast<std::size_t>(vocab + (added ? added->count : 0));
        term.a = transposed(values[a], static_cast<std::size_t>(rank), rows);
        values[a] = {};
        if (added) add_to_new_rows(term, static_cast<std::size_t>(vocab * rank), *added);
        if (!tied) return {};
        // The head reads the same table: its A is B^T and its B is A^T.
        LowRankPair pair;
        pair.projection = Projection::head;
        pair.rank = term.rank;
        pair.scale = scale;
        pair.b = term.a;
        pair.a = transposed(term.b, static_cast<std::size_t>(hidden), static_cast<std::size_t>(rank));
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// trainable_tokens_delta holds, in spite of its name, the rows themselves. A tied head reads them too.
Result<void> plan_new_tokens(SiteInput& input, const PlanContext& context) {
    const std::vector<TokenId>& ids = context.config.new_tokens;
    const std::int64_t hidden = context.base.hidden_size;
    const auto rows =
        input.need("token_adapter.trainable_tokens_delta", {static_cast<std::int64_t>(ids.size()), hidden});
    if (!rows) return rows.error();
    for (const TokenId id : ids)
        if (id >= context.table_rows())
            return input.refuse("trainable_token_indices names token " + std::to_string(id) +
                                (context.new_tokens ? ", the file's tables have " : ", this base has ") +
                                std::to_string(context.table_rows()));
    PlannedPart part;
    part.needs_base = true;
    part.made_bytes = static_cast<std::uint64_t>(ids.size()) * static_cast<std::uint64_t>(hidden) * 2 * kFloatBytes;
    part.build = [rows = *rows, ids, hidden, tied = context.base.tied_embeddings, added = context.new_tokens,
                  vocab = context.base.vocab_size, name = base_tensor(kEmbeddingSite, "weight", context.base)](
                     TensorValues& values, const BaseValues* base, Module& into) -> Result<void> {
        std::vector<std::size_t> order(ids.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return ids[x] < ids[y]; });
        EmbeddingTerm& term = embedding_of(into);
        const auto width = static_cast<std::size_t>(hidden);
        term.rows.reserve(ids.size() * width);
        std::vector<float> own(width);
        for (const std::size_t at : order) {
            if (ids[at] >= vocab) {
                const std::span<const float> row = std::span(values[rows]).subspan(at * width, width);
                set_new_row(added->input, ids[at] - vocab, row);
                if (tied) set_new_row(added->head, ids[at] - vocab, row);
                continue;
            }
            if (auto read = base->read_rows(name, ids[at], 1, own); !read) return read;
            term.tokens.push_back(ids[at]);
            for (std::size_t i = 0; i < width; ++i) term.rows.push_back(values[rows][at * width + i] - own[i]);
        }
        if (term.tokens.empty()) {
            into.embedding.reset();
        } else if (tied) {
            head_of(into) = {term.tokens, term.rows};
        }
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// What PEFT writes beside a saved table that was resized: the same again, and what it was before the training, which
/// nobody reads.
Result<void> plan_saved_copies(SiteInput& input, const PlanContext& context, PlannedStream& table) {
    struct Hashes {
        Xxh128 table;
        Xxh128 copy;
    };
    const auto hashes = std::make_shared<Hashes>();
    for (const char* parameter : {"modules_to_save.weight", "original_module.weight"}) {
        if (!context.new_tokens || !input.has(parameter)) continue;
        const auto copy = input.need(parameter, {context.table_rows(), context.base.hidden_size});
        if (!copy) return copy.error();
        PlannedStream stream;
        stream.columns = context.base.hidden_size;
        stream.take = [](std::int64_t, std::span<float>, const BaseValues*) -> Result<void> { return {}; };
        if (parameter == std::string_view("modules_to_save.weight")) {
            stream.take = [hashes](std::int64_t, std::span<float> rows, const BaseValues*) -> Result<void> {
                hashes->copy.update(std::as_bytes(rows));
                return {};
            };
            table.take = [hashes, take = std::move(table.take)](std::int64_t first, std::span<float> rows,
                                                                const BaseValues* base) {
                hashes->table.update(std::as_bytes(rows));
                return take(first, rows, base);
            };
            PlannedPart check;
            check.build = [hashes, refusal = input.refuse_tensor(**copy, "it is not what the table itself holds")](
                              TensorValues&, const BaseValues*, Module&) -> Result<void> {
                if (hashes->copy.hex() != hashes->table.hex()) return refusal;
                return {};
            };
            context.plan.parts.push_back(std::move(check));
        }
        context.plan.streams.emplace(*copy, std::move(stream));
    }
    return {};
}

/// A table that replaces the base's. Only rows that differ from the base's, as it is served, are kept.
Result<void> plan_saved_table(SiteInput& input, const PlanContext& context, bool for_input, bool for_head) {
    const std::int64_t vocab = context.base.vocab_size;
    const std::int64_t hidden = context.base.hidden_size;
    const auto table = input.need("weight", {context.table_rows(), hidden});
    if (!table) return table.error();
    const auto changed = std::make_shared<HeadRows>();
    PlannedStream stream;
    stream.columns = hidden;
    const TakeRows keep_changed = [changed, hidden, name = base_tensor(input.site(), "weight", context.base)](
                                      std::int64_t first, std::span<float> rows,
                                      const BaseValues* base) -> Result<void> {
        const auto width = static_cast<std::size_t>(hidden);
        std::vector<float> own(rows.size());
        if (auto read = base->read_rows(name, first, static_cast<std::int64_t>(rows.size() / width), own); !read)
            return read;
        std::vector<float> rounded(rows.begin(), rows.end());
        base->round_as_served(rounded);
        for (std::size_t begin = 0; begin < rows.size(); begin += width, ++first) {
            if (std::equal(own.begin() + static_cast<std::ptrdiff_t>(begin),
                           own.begin() + static_cast<std::ptrdiff_t>(begin + width),
                           rounded.begin() + static_cast<std::ptrdiff_t>(begin)))
                continue;
            changed->tokens.push_back(static_cast<TokenId>(first));
            for (std::size_t i = begin; i < begin + width; ++i) changed->rows.push_back(rows[i] - own[i]);
        }
        return {};
    };
    stream.take = split_rows(input, context, keep_changed);
    if (auto copies = plan_saved_copies(input, context, stream); !copies) return copies;
    context.plan.streams.emplace(*table, std::move(stream));
    PlannedPart part;
    part.needs_base = true;
    part.made_bytes = static_cast<std::uint64_t>(vocab * hidden) * kFloatBytes * (for_input && for_head ? 2 : 1);
    part.build = [=](TensorValues&, const BaseValues*, Module& into) -> Result<void> {
        changed->rows.shrink_to_fit();
        if (for_input) embedding_of(into).whole = true;
        if (for_input && !changed->tokens.empty()) {
            EmbeddingTerm& term = embedding_of(into);
            term.tokens = changed->tokens;
            term.rows = for_head ? changed->rows : std::move(changed->rows);
        }
        if (!for_head || changed->tokens.empty()) return {};
        if (static_cast<std::int64_t>(changed->tokens.size()) == vocab) {
            into.pairs.push_back(dense_pair(kHeadSite, hidden, std::move(changed->rows)));
        } else {
            head_of(into) = std::move(*changed);
        }
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// A copy of the base's table: only what lies beyond it is of any use.
Result<void> plan_base_copy(SiteInput& input, const PlanContext& context, std::string_view parameter) {
    const std::int64_t hidden = context.base.hidden_size;
    if (!input.has(parameter)) return {};
    const auto table = input.need(parameter, {context.table_rows(), hidden});
    if (!table) return table.error();
    struct Sums {
        double difference = 0;
        double own = 0;
    };
    const auto sums = std::make_shared<Sums>();
    PlannedStream stream;
    stream.columns = hidden;
    const TakeRows compare = [sums, hidden, name = base_tensor(input.site(), "weight", context.base)](
                                 std::int64_t first, std::span<float> rows, const BaseValues* base) -> Result<void> {
        if (base == nullptr) return {};
        std::vector<float> own(rows.size());
        if (auto read = base->read_rows(name, first, static_cast<std::int64_t>(rows.size()) / hidden, own); !read)
            return read;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const double difference = static_cast<double>(rows[i]) - own[i];
            sums->difference += difference * difference;
            sums->own += static_cast<double>(own[i]) * own[i];
        }
        return {};
    };
    stream.take = split_rows(input, context, compare);
    context.plan.streams.emplace(*table, std::move(stream));
    PlannedPart part;
    part.build = [sums,
                  refusal = input.refuse_tensor(**table, "it is not this base's: the adapter was made for another")](
                     TensorValues&, const BaseValues*, Module&) -> Result<void> {
        if (std::sqrt(sums->difference) > kSameTable * std::sqrt(sums->own)) return refusal;
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// Under every name that PEFT gives such a copy.
Result<void> plan_base_copies(SiteInput& input, const PlanContext& context) {
    for (const char* copy : {"weight", "base_layer.weight", "token_adapter.base_layer.weight"})
        if (auto planned = plan_base_copy(input, context, copy); !planned) return planned;
    return {};
}

/// Tied tables are one, so PEFT writes the head's trained rows as a copy of the embedding's.
Result<void> plan_tied_tokens(SiteInput& input, const PlanContext& context) {
    const char* parameter = "token_adapter.trainable_tokens_delta";
    const auto rows =
        input.need(parameter, {static_cast<std::int64_t>(context.config.new_tokens.size()), context.base.hidden_size});
    if (!rows) return rows.error();
    const auto embedding = context.tensors.sites.find(kEmbeddingSite);
    const StoredTensor* same = embedding == context.tensors.sites.end() ? nullptr : embedding->second.find(parameter);
    const Error refusal = input.refuse_tensor(**rows, "it is not the embedding's, which it is tied to");
    if (same == nullptr || !context.base.tied_embeddings) return refusal;
    PlannedPart check;
    check.build = [rows = *rows, same, refusal](TensorValues& values, const BaseValues*, Module&) -> Result<void> {
        if (values[rows] != values[same]) return refusal;
        return {};
    };
    context.plan.parts.push_back(std::move(check));
    return {};
}

}  // namespace

Result<void> plan_embedding(SiteInput& input, const PlanContext& context) {
    const bool saved = input.has("weight") && saved_by(input.path(), context.config) != nullptr;
    if (context.new_tokens && shares_rows(context)) plan_shared_rows(context);
    if (saved) return plan_saved_table(input, context, true, ties_saves(context) && !has_table(kHeadSite, context));
    if (input.has("token_adapter.trainable_tokens_delta")) {
        if (context.config.new_tokens.empty())
            return input.refuse(input.path() + " has rows for new tokens, but trainable_token_indices names none");
        if (auto planned = plan_new_tokens(input, context); !planned) return planned;
    }
    if (input.has("lora_embedding_A") || input.has("lora_embedding_B")) {
        if (auto planned = plan_embedding_lora(input, context); !planned) return planned;
    }
    return plan_base_copies(input, context);
}

Result<void> plan_head_table(SiteInput& input, const PlanContext& context) {
    if (input.has("weight") && saved_by(input.path(), context.config) != nullptr)
        return plan_saved_table(input, context, false, true);
    if (input.has("token_adapter.trainable_tokens_delta"))
        if (auto planned = plan_tied_tokens(input, context); !planned) return planned;
    return plan_base_copies(input, context);
}

}  // namespace attune
