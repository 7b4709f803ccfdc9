// What a slot can hold: a module's shapes against the base's. Loaders check more (names, values, what files promise);
// this keeps every later access inside its array.

#include "engine/files/quote.hpp"
#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <functional>
#include <string>

namespace attune {
namespace {

/// Collects the first fault.
class Check {
public:
    Check(const Module& module, const ModelShape& base, int max_rank)
        : module_(module), base_(base), max_rank_(max_rank), seen_(SlotContent::site(base.layer_count(), {})) {}

    Result<void> run() {
        for (const LowRankPair& pair : module_.pairs) check(pair);
        std::fill(seen_.begin(), seen_.end(), false);
        for (const OutputTerm& term : module_.outputs) check(term);
        std::fill(seen_.begin(), seen_.end(), false);
        for (const InputTerm& term : module_.inputs) check(term);
        if (module_.embedding) check(*module_.embedding);
        if (module_.head_rows)
            check_rows("a replaced row of the head", module_.head_rows->tokens, module_.head_rows->rows);
        if (module_.new_tokens) check(*module_.new_tokens);
        for (const NormTerm& term : module_.norms) check(term);
        if (module_.prefix) check(*module_.prefix);
        if (module_.prompt) check(*module_.prompt);
        int last = -1;
        for (const StateLayer& state : module_.states) check(state, last);
        if (fault_.empty()) return {};
        return make_error(Errc::invalid_module, "module " + in_quotes(module_.id.name) + ": " + fault_);
    }

private:
    void refuse(const std::string& fault) {
        if (fault_.empty()) fault_ = fault;
    }

    /// The place is the base's, and not taken twice by this kind of term.
    bool check_place(int layer, Projection projection, const std::string& who) {
        const bool head = projection == Projection::head;
        if (layer < 0 || (head ? layer != 0 : layer >= base_.layer_count())) {
            refuse(who + " is not in this base");
            return false;
        }
        const std::size_t site = SlotContent::site(layer, projection);
        if (seen_[site]) refuse(who + " is there twice");
        seen_[site] = true;
        return true;
    }

    static std::string words(int layer, Projection projection) {
        return "layer " + std::to_string(layer) + " " + std::string(projection_name(projection));
    }

    std::size_t in(Projection projection) const { return static_cast<std::size_t>(base_.in_features(projection)); }
    std::size_t out(Projection projection) const { return static_cast<std::size_t>(base_.out_features(projection)); }
    std::size_t hidden() const { return static_cast<std::size_t>(base_.hidden_size); }

    void check_rank(int rank, int limit, const std::string& who) {
        if (rank < 1 || rank > limit)
            refuse(who + " has rank " + std::to_string(rank) + ", the limit is " + std::to_string(limit));
    }

    void check(const LowRankPair& pair) {
        const std::string who = words(pair.layer, pair.projection);
        if (!check_place(pair.layer, pair.projection, who)) return;
        // Shards have no A to hold; a dense change has as many as there are inputs.
        const int limit = pair.a.empty() ? std::max(max_rank_, base_.in_features(pair.projection)) : max_rank_;
        check_rank(pair.rank, limit, who);
        const auto rank = static_cast<std::size_t>(std::max(pair.rank, 0));
        if ((!pair.a.empty() && pair.a.size() != rank * in(pair.projection)) ||
            pair.b.size() != rank * out(pair.projection))
            refuse(who + " has another base's shape");
    }

    void check(const OutputTerm& term) {
        const std::string who = words(term.layer, term.projection);
        if (!check_place(term.layer, term.projection, who)) return;
        for (const auto* values : {&term.gain, &term.add})
            if (!values->empty() && values->size() != out(term.projection)) refuse(who + " has another base's shape");
    }

    void check(const InputTerm& term) {
        const std::string who = words(term.layer, term.projection);
        if (!check_place(term.layer, term.projection, who)) return;
        if (term.gain.size() != in(term.projection)) refuse(who + " has another base's shape");
    }

    void check_rows(const std::string& who, const std::vector<TokenId>& tokens, const std::vector<float>& rows) {
        if (rows.size() != tokens.size() * hidden()) refuse(who + " has another base's shape");
        if (std::adjacent_find(tokens.begin(), tokens.end(), std::greater_equal<>()) != tokens.end())
            refuse("its tokens are not in ascending order");
        if (!tokens.empty() && (tokens.front() < 0 || tokens.back() >= base_.vocab_size))
            refuse(who + " is outside of this base's vocabulary");
    }

    void check(const EmbeddingTerm& term) {
        const std::string who = "the embedding";
        if (term.rank != 0) check_rank(term.rank, max_rank_, who);
        const auto rank = static_cast<std::size_t>(std::max(term.rank, 0));
        if (rank > 0 &&
            (term.a.size() != rank * static_cast<std::size_t>(base_.vocab_size) || term.b.size() != rank * hidden()))
            refuse(who + " has another base's shape");
        check_rows("a replaced row of the embedding", term.tokens, term.rows);
    }

    void check(const NewTokens& tokens) {
        const auto count = static_cast<std::size_t>(std::max(tokens.count, 0));
        if (tokens.count < 1 || tokens.count > kMostNewTokens)
            refuse("it has rows for " + std::to_string(tokens.count) + " new tokens, the limit is " +
                   std::to_string(kMostNewTokens));
        for (const auto* rows : {&tokens.input, &tokens.head})
            if (rows->size() != count * hidden()) refuse("a row of a new token has another base's shape");
    }

    void check(const NormTerm& term) {
        const std::string who = "a norm of layer " + std::to_string(term.layer);
        const bool last = term.site == NormSite::last;
        if (term.layer < 0 || (last ? term.layer != 0 : term.layer >= base_.layer_count()))
            return refuse(who + " is not in this base");
        const bool of_heads = term.site == NormSite::query || term.site == NormSite::key;
        if (term.delta.size() != (of_heads ? static_cast<std::size_t>(base_.head_dim) : hidden()))
            refuse(who + " has another base's shape");
    }

    void check(const PrefixSegment& prefix) {
        const auto values = static_cast<std::size_t>(std::max(prefix.tokens, 0)) *
                            static_cast<std::size_t>(base_.layer_count()) *
                            static_cast<std::size_t>(base_.kv_heads * base_.head_dim);
        if (prefix.tokens < 1 || prefix.keys.size() != values || prefix.values.size() != values)
            refuse("the prefix has another base's shape");
    }

    void check(const SoftPrompt& prompt) {
        if (prompt.tokens < 1 || prompt.rows.size() != static_cast<std::size_t>(prompt.tokens) * hidden())
            refuse("the soft prompt has another base's shape");
    }

    void check(const StateLayer& state, int& last) {
        const std::string who = "the state of layer " + std::to_string(state.layer);
        if (state.layer < 0 || state.layer >= base_.layer_count()) return refuse(who + " is not in this base");
        if (state.layer <= last) refuse(who + " is there twice or out of order");
        last = state.layer;
        if (state.kind == StateKind::vector) {
            if (state.vector.size() != hidden()) refuse(who + " has another base's shape");
            return;
        }
        const auto width = static_cast<std::size_t>(std::max(state.width, 0));
        const auto fits = [](const std::vector<float>& values, std::size_t size) {
            return values.empty() || values.size() == size;
        };
        if (width == 0 || state.down.size() != width * hidden() || state.up.size() != width * hidden() ||
            !fits(state.down_bias, width) || !fits(state.up_bias, hidden()))
            refuse(who + " has another base's shape");
    }

    const Module& module_;
    const ModelShape& base_;
    int max_rank_;
    std::vector<bool> seen_;
    std::string fault_;
};

}  // namespace

Result<void> ModuleSlots::Impl::check(const Module& module) const {
    return Check(module, shape, prepared_rank > 0 ? prepared_rank : options.max_rank).run();
}

}  // namespace attune
