#pragma once

#include "attune/ids.hpp"
#include "attune/request.hpp"
#include "attune/token_event.hpp"
#include "engine/sample/token_constraint.hpp"
#include "engine/sample/token_counts.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace attune {

/// Everything besides the logits that decides one choice's next token.
struct SampleContext {
    const SamplingParams& params;
    std::uint64_t seed = 0;
    int choice = 0;
    int token_index = 0;                    ///< output tokens so far
    std::span<const TokenId> end_ids = {};  ///< end and stop ids: impossible before min_tokens
    const TokenCounts* counts = nullptr;    ///< null: no penalties
    TokenConstraint* constraint = nullptr;  ///< null: every token may come
};

struct Sample {
    enum class Outcome : std::uint8_t { token, non_finite, nothing_allowed } outcome = Outcome::token;
    TokenId id = 0;
    std::optional<TokenScores> scores;  ///< when params.logprobs is set; `bytes` are left empty
};

/// Logits to token, in vLLM's order: constraint, min_tokens, logit_bias, penalties; then greedy, or temperature, min_p,
/// top_k, top_p and one random number. Ties go to the lower id. A token is a function of its row and its context alone.
///
/// Holds scratch for one row, so one Sampler serves one thread; nothing is allocated per token but asked-for scores.
class Sampler {
public:
    /// Rows of another width are fine: a module may know more tokens than the base.
    explicit Sampler(int vocab_size);

    Sample sample(std::span<const float> logits, const SampleContext& context);

    /// Raw log-probability and rank of `token`, with the `top` best beside it. Empty when the row is not finite.
    std::optional<TokenScores> score(std::span<const float> logits, TokenId token, int top);

    /// What sample() draws from, per vocabulary entry. False when nothing may be drawn.
    bool probabilities(std::span<const float> logits, const SampleContext& context, std::span<float> out);

private:
    struct Candidate {
        float weight = 0;  // first the logit, then exp((logit - max) / temperature)
        TokenId id = 0;
    };

    void fit(std::size_t width);
    static bool is_better(const Candidate& a, const Candidate& b);
    std::span<const float> adjust(std::span<const float> logits, const SampleContext& context);
    void weigh(std::span<const float> row, float max, const SamplingParams& params);
    void gather_top_k(std::span<const float> row, int k);
    void gather_top_p(double top_p);
    void cut_to_top_p(double top_p);
    TokenId draw(double uniform) const;
    TokenScores score_finite(std::span<const float> logits, float max, TokenId token, int top);

    std::size_t vocab_size_ = 0;          // of the row at hand
    std::vector<float> row_;              // [vocab] logits after adjust()
    std::vector<float> weights_;          // [vocab] relative probabilities when all tokens are candidates
    std::vector<double> run_sums_;        // their sums per run
    std::vector<float> run_maxima_;       // scratch of gather_top_k and score
    std::vector<float> sorted_maxima_;    // scratch of gather_top_k
    std::vector<Candidate> candidates_;   // after top-k (best first) or top-p
    std::vector<Candidate> passing_;      // [vocab] scratch of gather_top_p: not too small to be kept
    std::vector<Candidate> boundary_;     // [vocab] scratch of gather_top_p: as small as the last token it keeps
    std::vector<double> magnitude_sums_;  // scratch of gather_top_p: weights by their size
    bool all_are_candidates_ = false;
    double total_ = 0;  // of the weights to draw from
};

}  // namespace attune
