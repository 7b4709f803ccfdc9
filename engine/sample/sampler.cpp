#include "engine/sample/sampler.hpp"

#include "attune/assert.hpp"
#include "engine/sample/philox.hpp"
#include "engine/sample/row_math.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace attune {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr double kGreedyBelow = 1e-5;  // vLLM's _SAMPLING_EPS

// Classes of weights in (0, 1], 128 per halving, the largest first; the last one holds all that is below 2^-32.
constexpr std::size_t kMagnitudes = 32 * 128;

std::size_t magnitude_of(float weight) {
    constexpr std::int32_t kOne = 0x3F80;  // upper half of 1.0F
    const std::int32_t upper = std::bit_cast<std::int32_t>(weight) >> 16;
    return static_cast<std::size_t>(std::clamp(kOne - upper, 0, static_cast<std::int32_t>(kMagnitudes) - 1));
}

bool is_greedy(const SamplingParams& params) { return params.temperature < kGreedyBelow; }

bool has_penalties(const SamplingParams& params) {
    return params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
}

void mask_disallowed(std::span<float> row, std::span<const std::uint32_t> mask) {
    for (std::size_t i = 0; i < row.size(); ++i) {
        const std::size_t word = i / 32;
        const bool allowed = word < mask.size() && ((mask[word] >> (i % 32)) & 1U) != 0;
        if (!allowed) row[i] = kImpossible;
    }
}

float penalised(float logit, const TokenCounts::Entry& entry, const SamplingParams& params) {
    if (entry.outputs == 0 && !entry.in_prompt) return logit;
    const auto repetition = static_cast<float>(params.repetition_penalty);
    float out = logit > 0 ? logit / repetition : logit * repetition;
    out -= static_cast<float>(params.frequency_penalty) * static_cast<float>(entry.outputs);
    if (entry.outputs > 0) out -= static_cast<float>(params.presence_penalty);
    // A tiny repetition penalty may overflow; -inf stays what a mask made it.
    return std::min(out, std::numeric_limits<float>::max());
}

}  // namespace

Sampler::Sampler(int vocab_size) {
    fit(static_cast<std::size_t>(vocab_size));
    magnitude_sums_.resize(kMagnitudes);
}

void Sampler::fit(std::size_t width) {
    if (vocab_size_ == width) return;
    vocab_size_ = width;
    const std::size_t runs = (vocab_size_ + kRunLength - 1) / kRunLength;
    row_.resize(vocab_size_);
    weights_.resize(vocab_size_);
    run_sums_.resize(runs);
    run_maxima_.resize(runs);
    sorted_maxima_.resize(runs);
    candidates_.reserve(vocab_size_);
    passing_.resize(vocab_size_);
    boundary_.resize(vocab_size_);
}

Sample Sampler::sample(std::span<const float> logits, const SampleContext& context) {
    fit(logits.size());
    Sample sample;
    const RowMax raw = row_max(logits);
    if (!raw.finite) {
        sample.outcome = Sample::Outcome::non_finite;
        return sample;
    }
    const std::span<const float> row = adjust(logits, context);
    const float max = row.data() == logits.data() ? raw.value : row_max(row).value;
    if (max == kImpossible) {
        sample.outcome = Sample::Outcome::nothing_allowed;
        return sample;
    }
    if (is_greedy(context.params)) {
        sample.id = static_cast<TokenId>(first_equal(row, max));
    } else {
        weigh(row, max, context.params);
        sample.id = draw(token_uniform(context.seed, context.choice, context.token_index));
    }
    if (context.params.logprobs) sample.scores = score_finite(logits, raw.value, sample.id, *context.params.logprobs);
    return sample;
}

bool Sampler::probabilities(std::span<const float> logits, const SampleContext& context, std::span<float> out) {
    ATTUNE_ASSERT(logits.size() == out.size());
    fit(logits.size());
    std::fill(out.begin(), out.end(), 0.0F);
    if (!row_max(logits).finite) return false;
    const std::span<const float> row = adjust(logits, context);
    const float max = row_max(row).value;
    if (max == kImpossible) return false;
    if (is_greedy(context.params)) {
        out[first_equal(row, max)] = 1.0F;
        return true;
    }
    weigh(row, max, context.params);
    const auto share = [&](float weight) { return static_cast<float>(static_cast<double>(weight) / total_); };
    if (all_are_candidates_) {
        std::transform(weights_.begin(), weights_.end(), out.begin(), share);
    } else {
        for (const Candidate& candidate : candidates_)
            out[static_cast<std::size_t>(candidate.id)] = share(candidate.weight);
    }
    return true;
}

bool Sampler::is_better(const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

/// The row with everything that applies before temperature; `logits` itself when nothing does.
std::span<const float> Sampler::adjust(std::span<const float> logits, const SampleContext& context) {
    const SamplingParams& params = context.params;
    const bool below_min = context.token_index < params.min_tokens && !context.end_ids.empty();
    const bool penalties = context.counts != nullptr && has_penalties(params);
    if (context.constraint == nullptr && !below_min && !penalties && params.logit_bias.empty()) return logits;

    std::copy(logits.begin(), logits.end(), row_.begin());
    if (context.constraint != nullptr) mask_disallowed(row_, context.constraint->mask());
    if (below_min) {
        for (const TokenId id : context.end_ids) row_[static_cast<std::size_t>(id)] = kImpossible;
    }
    for (const auto& [id, bias] : params.logit_bias) row_[static_cast<std::size_t>(id)] += bias;
    if (penalties) {
        for (const TokenCounts::Entry& entry : context.counts->entries()) {
            float& logit = row_[static_cast<std::size_t>(entry.id)];
            logit = penalised(logit, entry, params);
        }
    }
    return row_;
}

/// Fills weights_ or candidates_, and total_, with what the parameters leave of the row.
void Sampler::weigh(std::span<const float> row, float max, const SamplingParams& params) {
    const auto scale = static_cast<float>(1.0 / params.temperature);
    const auto floor = static_cast<float>(params.min_p);  // the best token's weight is 1
    const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < vocab_size_;
    all_are_candidates_ = false;
    if (top_k) {
        gather_top_k(row, params.top_k);
        total_ = 0;
        for (Candidate& candidate : candidates_) {
            const float weight = exp_nonpositive((candidate.weight - max) * scale);
            candidate.weight = weight < floor ? 0.0F : weight;
            total_ += static_cast<double>(candidate.weight);
        }
        if (params.top_p < 1.0) cut_to_top_p(params.top_p);
        return;
    }
    total_ = exp_weights(row, max, scale, floor, weights_, run_sums_);
    if (params.top_p < 1.0) {
        gather_top_p(params.top_p);
    } else {
        all_are_candidates_ = true;
    }
}

/// The k best logits and those equal to the last of them, best first.
void Sampler::gather_top_k(std::span<const float> row, int k) {
    const auto wanted = static_cast<std::size_t>(k);
    candidates_.clear();
    run_maxima(row, run_maxima_);
    // The k-th best run maximum is a lower bound of the k-th best value: few values pass it.
    float bound = std::numeric_limits<float>::lowest();
    if (wanted < run_maxima_.size()) {
        std::copy(run_maxima_.begin(), run_maxima_.end(), sorted_maxima_.begin());
        const auto kth = sorted_maxima_.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
        std::nth_element(sorted_maxima_.begin(), kth, sorted_maxima_.end(), std::greater<>());
        bound = std::max(bound, *kth);
    }
    for (std::size_t run = 0; run < run_maxima_.size(); ++run) {
        if (run_maxima_[run] < bound) continue;
        const std::size_t end = std::min(row.size(), (run + 1) * kRunLength);
        for (std::size_t i = run * kRunLength; i < end; ++i) {
            if (row[i] >= bound) candidates_.push_back({row[i], static_cast<TokenId>(i)});
        }
    }
    if (candidates_.size() > wanted) {
        const auto kth = candidates_.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
        std::nth_element(candidates_.begin(), kth, candidates_.end(), is_better);
        const float last = kth->weight;
        std::erase_if(candidates_, [last](const Candidate& candidate) { return candidate.weight < last; });
    }
    std::sort(candidates_.begin(), candidates_.end(), is_better);
}

/// From best-first candidates keeps the fewest whose weights reach top_p of total_; total_ becomes their sum.
void Sampler::cut_to_top_p(double top_p) {
    const double enough = top_p * total_;
    double sum = 0;
    std::size_t kept = 0;
    while (kept < candidates_.size() && (kept == 0 || sum < enough))
        sum += static_cast<double>(candidates_[kept++].weight);
    candidates_.resize(kept);
    total_ = sum;
}

/// The same from all of weights_, without sorting them: sums by magnitude tell how small the last kept token is, and
/// only tokens of that magnitude are sorted. Which tokens pass is anybody's guess, so nothing branches on it.
void Sampler::gather_top_p(double top_p) {
    // Tokens each below (1 - p) / vocab of the mass sum to less than 1 - p: none of them is kept.
    const double negligible = (1.0 - top_p) * total_ / static_cast<double>(vocab_size_);
    const float bound =
        std::max(std::nextafter(static_cast<float>(negligible), 0.0F), std::numeric_limits<float>::denorm_min());
    std::size_t passing = 0;
    for (std::size_t run = 0; run < run_sums_.size(); ++run) {
        if (run_sums_[run] < negligible) continue;
        const std::size_t end = std::min(vocab_size_, (run + 1) * kRunLength);
        for (std::size_t i = run * kRunLength; i < end; ++i) {
            passing_[passing] = {weights_[i], static_cast<TokenId>(i)};
            passing += weights_[i] >= bound ? 1 : 0;
        }
    }

    std::fill(magnitude_sums_.begin(), magnitude_sums_.end(), 0.0);
    for (std::size_t i = 0; i < passing; ++i)
        magnitude_sums_[magnitude_of(passing_[i].weight)] += static_cast<double>(passing_[i].weight);
    double wanted = top_p * total_;
    std::size_t last = 0;
    while (last + 1 < kMagnitudes && magnitude_sums_[last] < wanted) wanted -= magnitude_sums_[last++];

    std::size_t kept = 0;
    std::size_t edge = 0;
    for (std::size_t i = 0; i < passing; ++i) {
        const Candidate candidate = passing_[i];
        const std::size_t magnitude = magnitude_of(candidate.weight);
        boundary_[edge] = candidate;
        edge += magnitude == last ? 1 : 0;
        passing_[kept] = candidate;
        kept += magnitude < last ? 1 : 0;
    }
    candidates_.assign(passing_.begin(), passing_.begin() + static_cast<std::ptrdiff_t>(kept));
    std::sort(boundary_.begin(), boundary_.begin() + static_cast<std::ptrdiff_t>(edge), is_better);
    for (std::size_t i = 0; i < edge && wanted > 0; ++i) {
        candidates_.push_back(boundary_[i]);
        wanted -= static_cast<double>(boundary_[i].weight);
    }
    total_ = 0;
    for (const Candidate& candidate : candidates_) total_ += static_cast<double>(candidate.weight);
}

/// The token at which the running sum of weights passes uniform * total_.
TokenId Sampler::draw(double uniform) const {
    const double target = uniform * total_;
    double sum = 0;
    if (!all_are_candidates_) {
        TokenId last = candidates_.front().id;
        for (const Candidate& candidate : candidates_) {
            if (candidate.weight <= 0) continue;
            last = candidate.id;
            sum += static_cast<double>(candidate.weight);
            if (sum > target) break;
        }
        return last;
    }
    // Rounding may leave the target at the very end, so the last token with any weight is the fallback.
    std::size_t run = 0;
    std::size_t last_run = 0;
    for (; run < run_sums_.size(); ++run) {
        if (run_sums_[run] > 0) last_run = run;
        if (sum + run_sums_[run] > target) break;
        sum += run_sums_[run];
    }
    if (run == run_sums_.size()) {
        run = last_run;
        sum -= run_sums_[run];
    }
    std::size_t last = run * kRunLength;
    const std::size_t end = std::min(vocab_size_, (run + 1) * kRunLength);
    for (std::size_t i = run * kRunLength; i < end; ++i) {
        if (weights_[i] <= 0) continue;
        last = i;
        sum += static_cast<double>(weights_[i]);
        if (sum > target) break;
    }
    return static_cast<TokenId>(last);
}

std::optional<TokenScores> Sampler::score(std::span<const float> logits, TokenId token, int top) {
    fit(logits.size());
    const RowMax raw = row_max(logits);
    if (!raw.finite) return std::nullopt;
    return score_finite(logits, raw.value, token, top);
}

TokenScores Sampler::score_finite(std::span<const float> logits, float max, TokenId token, int top) {
    const double log_total = std::log(exp_sum(logits, max));
    const auto logprob = [&](float logit) {
        return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_total);
    };
    const auto index = static_cast<std::size_t>(token);
    const float logit = logits[index];
    const auto before = logits.first(index);
    const auto equal_before = static_cast<int>(std::count(before.begin(), before.end(), logit));
    TokenScores scores;
    scores.chosen = {token, logprob(logit), count_greater(logits, logit) + equal_before + 1, {}};
    if (top > 0) {
        const auto wanted = std::min(static_cast<std::size_t>(top), vocab_size_);
        gather_top_k(logits, static_cast<int>(wanted));
        scores.top.reserve(wanted);
        for (std::size_t i = 0; i < wanted; ++i)
            scores.top.push_back({candidates_[i].id, logprob(candidates_[i].weight), static_cast<int>(i) + 1, {}});
    }
    return scores;
}

}  // namespace attune
