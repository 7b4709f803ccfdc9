#include "bench/load/report.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>

namespace attune::load {

namespace json = boost::json;

namespace {

double ms(Clock::duration span) { return std::chrono::duration<double, std::milli>(span).count(); }

double rounded(double value) { return std::round(value * 1000) / 1000; }

json::object spread(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value;
    return {{"mean", rounded(values.empty() ? 0 : sum / static_cast<double>(values.size()))},
            {"p50", rounded(percentile(values, 0.50))},
            {"p90", rounded(percentile(values, 0.90))},
            {"p95", rounded(percentile(values, 0.95))},
            {"p99", rounded(percentile(values, 0.99))},
            {"max", rounded(percentile(values, 1.0))}};
}

// Mean gap between tokens of one answer, ms. Chunks may carry several tokens, so tokens are counted by usage.
double mean_gap(const Outcome& outcome) {
    if (outcome.completion_tokens < 2 || outcome.chunks.empty()) return 0;
    return ms(outcome.chunks.back() - outcome.chunks.front()) / (outcome.completion_tokens - 1);
}

}  // namespace

double percentile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const auto high = std::min(low + 1, values.size() - 1);
    return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

std::string report(const Options& options, const std::vector<Outcome>& outcomes) {
    std::vector<double> ttft, gaps, token_gaps, whole;
    std::int64_t prompt_tokens = 0, completion_tokens = 0, base_tokens = 0, good = 0, failed = 0;
    std::map<std::string, std::int64_t> cold, asked;
    std::string first_error;
    Clock::time_point first = Clock::time_point::max(), last = Clock::time_point::min();
    for (const auto& outcome : outcomes) {
        first = std::min(first, outcome.start);
        last = std::max(last, outcome.end);
        ++asked[outcome.model];
        if (!outcome.error.empty() || outcome.chunks.empty()) {
            ++failed;
            if (first_error.empty()) first_error = outcome.error.empty() ? "no tokens" : outcome.error;
            continue;
        }
        prompt_tokens += outcome.prompt_tokens;
        completion_tokens += outcome.completion_tokens;
        base_tokens += outcome.base_tokens;
        if (!outcome.cold.empty()) ++cold[outcome.cold];
        ttft.push_back(ms(outcome.chunks.front() - outcome.start));
        whole.push_back(ms(outcome.end - outcome.start));
        token_gaps.push_back(mean_gap(outcome));
        for (std::size_t i = 1; i < outcome.chunks.size(); ++i)
            gaps.push_back(ms(outcome.chunks[i] - outcome.chunks[i - 1]));
        good += ttft.back() <= options.slo_ttft_ms && token_gaps.back() <= options.slo_itl_ms;
    }
    const double seconds = outcomes.empty() ? 0 : std::max(ms(last - first) / 1000, 1e-9);
    const auto per_second = [&](std::int64_t count) {
        return seconds > 0 ? rounded(static_cast<double>(count) / seconds) : 0;
    };
    json::object line{{"streams", options.rate > 0 ? 0 : options.streams},
                      {"rate", options.rate},
                      {"requests", outcomes.size()},
                      {"failed", failed},
                      {"modules", options.modules.size()},
                      {"zipf", options.zipf},
                      {"seed", options.seed},
                      {"prompt_tokens", prompt_tokens},
                      {"completion_tokens", completion_tokens},
                      {"base_tokens", base_tokens},
                      {"seconds", seconds},
                      {"output_tokens_per_s", per_second(completion_tokens)},
                      {"requests_per_s", per_second(static_cast<std::int64_t>(whole.size()))},
                      {"goodput_per_s", per_second(good)},
                      {"slo_ttft_ms", options.slo_ttft_ms},
                      {"slo_itl_ms", options.slo_itl_ms},
                      {"ttft_ms", spread(ttft)},
                      {"itl_ms", spread(gaps)},
                      {"tpot_ms", spread(token_gaps)},
                      {"e2e_ms", spread(whole)},
                      {"cold", json::value_from(cold)},
                      {"asked", json::value_from(asked)}};
    if (!first_error.empty()) line["first_error"] = first_error;
    return json::serialize(line);
}

}  // namespace attune::load
