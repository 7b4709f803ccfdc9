#include "bench/load/workload.hpp"

#include <boost/json.hpp>
#include <cmath>
#include <random>

namespace attune::load {

namespace {

// Ids below 64 are left out: control tokens live there in the models we serve.
boost::json::array draw_ids(std::mt19937_64& random, int count, int vocab) {
    const int first = vocab > 128 ? 64 : 3;
    std::uniform_int_distribution<int> id(first, vocab - 1);
    boost::json::array ids;
    for (int i = 0; i < count; ++i) ids.emplace_back(id(random));
    return ids;
}

std::vector<double> zipf_weights(std::size_t count, double exponent) {
    std::vector<double> weights;
    for (std::size_t i = 0; i < count; ++i) weights.push_back(std::pow(static_cast<double>(i + 1), -exponent));
    return weights;
}

std::string body_of(const Options& options, const std::string& module, boost::json::array prompt) {
    const bool by_model = !module.empty() && !options.lora_ids;
    boost::json::object body{{"model", by_model ? module : options.model},
                             {"prompt", std::move(prompt)},
                             {"max_tokens", options.max_tokens},
                             {"temperature", 0},
                             {"ignore_eos", true},
                             {"stream", true},
                             {"stream_options", {{"include_usage", true}}}};
    if (!options.cold.empty()) body["attune"] = {{"cold", options.cold}};
    if (options.lora_ids) {
        boost::json::array adapters;
        // What is not named would stay on at its scale.
        for (const std::string& id : options.modules) {
            const double scale = id == module ? 1.0 : 0.0;
            adapters.push_back({{"id", std::stoi(id)}, {"scale", scale}});
        }
        body["lora"] = std::move(adapters);
    }
    return boost::json::serialize(body);
}

}  // namespace

std::vector<Planned> plan(const Options& options) {
    std::mt19937_64 random(options.seed);
    const auto shared = draw_ids(random, std::min(options.shared_tokens, options.prompt_tokens), options.vocab);
    const auto weights = zipf_weights(options.modules.size(), options.zipf);
    std::discrete_distribution<std::size_t> pick(weights.begin(), weights.end());
    std::exponential_distribution<double> gap(options.rate > 0 ? options.rate : 1.0);

    std::vector<Planned> planned;
    double start_s = 0;
    for (int i = 0; i < options.requests; ++i) {
        Planned next;
        std::string module;
        if (!options.modules.empty()) {
            const auto turn = static_cast<std::size_t>(i) % options.modules.size();
            module = options.modules[options.zipf > 0 ? pick(random) : turn];
        }
        next.model = module.empty() ? options.model : module;
        auto prompt = shared;
        for (auto& id : draw_ids(random, options.prompt_tokens - static_cast<int>(shared.size()), options.vocab))
            prompt.push_back(std::move(id));
        next.body = body_of(options, module, std::move(prompt));
        if (options.rate > 0) {
            start_s += gap(random);
            next.start_s = start_s;
        }
        planned.push_back(std::move(next));
    }
    return planned;
}

}  // namespace attune::load
