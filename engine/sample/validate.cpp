#include "engine/sample/validate.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>

namespace attune {
namespace {

Result<void> refuse(const char* param, std::string message) {
    return make_error(Errc::invalid_argument, std::move(message), param);
}

template <class Number>
std::string text_of(Number value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

/// "X must be <what>, got V."
template <class Number>
Result<void> must_be(bool holds, const char* param, const std::string& what, Number got) {
    if (holds) return {};
    return refuse(param, std::string(param) + " must be " + what + ", got " + text_of(got) + ".");
}

std::string between(double low, double high) { return "in [" + text_of(low) + ", " + text_of(high) + "]"; }

// Written so that a not-a-number is outside of every range.
bool is_in(double value, double low, double high) { return value >= low && value <= high; }

Result<void> check_distribution(const SamplingParams& p) {
    const double largest = 1e6;  // keeps 1 / repetition_penalty and logits / temperature within float
    if (auto ok = must_be(is_in(p.temperature, 0, largest), "temperature", "non-negative and finite", p.temperature);
        !ok)
        return ok;
    if (auto ok = must_be(p.top_p > 0 && p.top_p <= 1, "top_p", "in (0, 1]", p.top_p); !ok) return ok;
    if (auto ok = must_be(p.top_k >= -1, "top_k", "0 (disable), or at least 1", p.top_k); !ok) return ok;
    if (auto ok = must_be(is_in(p.min_p, 0, 1), "min_p", between(0, 1), p.min_p); !ok) return ok;
    if (auto ok = must_be(p.repetition_penalty > 0 && p.repetition_penalty <= largest, "repetition_penalty",
                          "greater than zero and finite", p.repetition_penalty);
        !ok)
        return ok;
    if (auto ok = must_be(is_in(p.presence_penalty, -2, 2), "presence_penalty", between(-2, 2), p.presence_penalty);
        !ok)
        return ok;
    return must_be(is_in(p.frequency_penalty, -2, 2), "frequency_penalty", between(-2, 2), p.frequency_penalty);
}

Result<void> check_bias(const SamplingParams& p, int vocab_size, const LimitSettings& limits) {
    if (p.logit_bias.size() > static_cast<std::size_t>(limits.logit_bias))
        return refuse("logit_bias", "logit_bias holds " + text_of(p.logit_bias.size()) + " tokens, the limit is " +
                                        text_of(limits.logit_bias) + ".");
    for (const auto& [id, bias] : p.logit_bias) {
        if (id < 0 || id >= vocab_size)
            return refuse("logit_bias", "logit_bias: token id " + text_of(id) + " is outside of the vocabulary of " +
                                            text_of(vocab_size) + " tokens.");
        if (!is_in(static_cast<double>(bias), -100, 100))
            return refuse("logit_bias", "logit_bias: the value of token id " + text_of(id) +
                                            " must be in [-100, 100], got " + text_of(bias) + ".");
    }
    return {};
}

Result<void> check_stops(const SamplingParams& p, int vocab_size, const LimitSettings& limits) {
    if (p.stop.size() > static_cast<std::size_t>(limits.stops))
        return refuse("stop",
                      "stop holds " + text_of(p.stop.size()) + " strings, the limit is " + text_of(limits.stops) + ".");
    for (const std::string& stop : p.stop) {
        if (stop.empty()) return refuse("stop", "stop cannot contain an empty string.");
        if (stop.size() > static_cast<std::size_t>(limits.stop_bytes))
            return refuse("stop", "a stop string of " + text_of(stop.size()) + " bytes is too long, the limit is " +
                                      text_of(limits.stop_bytes) + ".");
    }
    if (p.stop_token_ids.size() > static_cast<std::size_t>(vocab_size))
        return refuse("stop_token_ids", "stop_token_ids holds more ids than the vocabulary.");
    for (const TokenId id : p.stop_token_ids) {
        if (id < 0 || id >= vocab_size)
            return refuse("stop_token_ids", "stop_token_ids: token id " + text_of(id) +
                                                " is outside of the vocabulary of " + text_of(vocab_size) + " tokens.");
    }
    return {};
}

Result<void> check_counts(const SamplingParams& p, const LimitSettings& limits) {
    if (auto ok = must_be(is_in(p.n, 1, limits.n), "n", between(1, limits.n), p.n); !ok) return ok;
    if (auto ok = must_be(p.min_tokens >= 0, "min_tokens", "greater than or equal to 0", p.min_tokens); !ok) return ok;
    if (p.max_tokens) {
        // 0 is for whoever wants the prompt back or scored, and nothing else.
        const bool prompt_only = p.echo || p.prompt_logprobs.has_value();
        const int least = prompt_only ? 0 : 1;
        if (auto ok = must_be(*p.max_tokens >= least, "max_tokens", "at least " + text_of(least), *p.max_tokens); !ok)
            return ok;
        if (auto ok = must_be(p.min_tokens <= *p.max_tokens, "min_tokens",
                              "less than or equal to max_tokens=" + text_of(*p.max_tokens), p.min_tokens);
            !ok)
            return ok;
    }
    if (auto ok = must_be(is_in(p.logprobs.value_or(0), 0, limits.logprobs), "logprobs", between(0, limits.logprobs),
                          p.logprobs.value_or(0));
        !ok)
        return ok;
    return must_be(is_in(p.prompt_logprobs.value_or(0), 0, limits.logprobs), "prompt_logprobs",
                   between(0, limits.logprobs), p.prompt_logprobs.value_or(0));
}

}  // namespace

Result<void> validate(const SamplingParams& params, int vocab_size, const LimitSettings& limits) {
    if (auto ok = check_distribution(params); !ok) return ok;
    if (auto ok = check_counts(params, limits); !ok) return ok;
    if (auto ok = check_bias(params, vocab_size, limits); !ok) return ok;
    return check_stops(params, vocab_size, limits);
}

}  // namespace attune
