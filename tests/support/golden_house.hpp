#pragma once

#include "attune/assert.hpp"
#include "engine/engine.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/module/module_loader.hpp"
#include "support/golden.hpp"
#include "support/recording_sink.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// A real engine over one of the tiny golden models, in float32 unless told.
struct GoldenHouse {
    struct Size {
        int step_tokens = 512;
        int max_sequences = 64;
        int blocks = 0;  ///< 0: the engine's choice
        std::vector<TokenId> end_tokens = {};
        bool prefix_cache = true;
        std::string dtype = "f32";  ///< of weights, cache and slots
        std::string kernels = "auto";
        std::string activations = "f32";
        std::string apply = "batched";
        std::int64_t drain_ms = 200;
        std::string restore_from = "file";
        bool park_preempted = false;
        Now now = steady_now;
        std::filesystem::path file = {};  ///< GGUF, instead of the model's folder
    };

    explicit GoldenHouse(const std::string& model_name) : GoldenHouse(model_name, Size{}) {}
    GoldenHouse(const std::string& model_name, const Size& size) : model(model_name) {
        EngineOptions options;
        options.model = size.file.empty() ? golden::model_folder(model) : size.file;
        options.device = "cpu";
        options.dtype = size.dtype;
        options.kernels = size.kernels;
        options.activations = size.activations;
        options.slot_dtype = size.dtype == "f32" ? "f32" : "bf16";
        options.step_tokens = size.step_tokens;
        options.max_sequences = size.max_sequences;
        options.module_bytes = 8 << 20;
        options.threads = 1;
        options.end_tokens = size.end_tokens;
        options.prefix_cache = size.prefix_cache;
        options.apply = size.apply;
        options.drain_ms = size.drain_ms;
        options.restore_from = size.restore_from;
        options.park_preempted = size.park_preempted;
        options.now = size.now;
        if (size.blocks > 0) {
            const auto shape = read_model_shape(options.model);
            if (!shape) throw std::runtime_error(shape.error().message);
            options.kv_bytes = static_cast<std::uint64_t>(size.blocks) * kBlockTokens * 2 * sizeof(float) *
                               static_cast<std::uint64_t>(shape->kv_heads * shape->head_dim * shape->layer_count());
        }
        auto opened = Engine::open(options, nullptr);
        if (!opened) throw std::runtime_error(opened.error().message);
        engine = *std::move(opened);
    }

    /// A golden adapter on its slot, loaded once.
    JobModule module(const std::string& name, double weight = 1.0) {
        auto found = slots.find(name);
        if (found == slots.end()) {
            ModuleLimits limits;
            limits.base_values = engine->base_values();
            auto loaded = load_module(name, golden::adapter_folder(model, name), engine->shape(), limits);
            if (!loaded) throw std::runtime_error(loaded.error().message);
            found = slots.emplace(name, install(*loaded)).first;
        }
        JobModule module = found->second;
        module.applied.weight = weight;
        return module;
    }
    JobModule install(const ModulePtr& module) {
        auto slot = engine->install(module);
        if (!slot) throw std::runtime_error(slot.error().message);
        return {*slot, {module->id, 1.0, false}};
    }
    /// Removes every golden adapter.
    void clear() {
        for (const auto& [name, module] : slots) engine->remove(module.slot);
        slots.clear();
    }

    static SamplingParams greedy(int max_tokens = 32) {
        SamplingParams params;
        params.temperature = 0;
        params.max_tokens = max_tokens;
        params.seed = 0;
        params.logprobs = 5;
        return params;
    }

    std::shared_ptr<RecordingSink> add(std::vector<TokenId> prompt, SamplingParams params = greedy(),
                                       std::vector<JobModule> modules = {}, Combine combine = Combine::sequence,
                                       std::string cache_salt = {}) {
        auto job = std::make_unique<Job>();
        job->id = RequestId{next_id++};
        job->prompt = std::move(prompt);
        job->sampling = std::move(params);
        job->modules = std::move(modules);
        job->combine = combine;
        job->cache_salt = std::move(cache_salt);
        auto sink = std::make_shared<RecordingSink>();
        job->sink = sink;
        engine->add(std::move(job));
        return sink;
    }

    /// `name` is "base" or a golden adapter.
    std::vector<JobModule> modules_of(const std::string& name) {
        if (name == "base") return {};
        return {module(name)};
    }

    bool run(int most_steps = 5000) {
        for (int i = 0; i < most_steps && engine->has_work(); ++i) step();
        return !engine->has_work();
    }
    StepReport step() {
        StepReport report = engine->step();
        preempted += report.preempted;
        merges += report.merges;
        restores += report.restores;
        return report;
    }

    bool all_free() const {
        const EngineStats stats = engine->stats();
        return stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.total_blocks;
    }

    std::string model;
    std::unique_ptr<Engine> engine;
    std::map<std::string, JobModule> slots;
    std::uint64_t next_id = 1;
    int preempted = 0;
    int merges = 0;
    int restores = 0;
};

/// The same, and the log-probability of every token at every prompt position.
inline SamplingParams greedy_with_whole_rows(int vocab_size) {
    SamplingParams params = GoldenHouse::greedy();
    params.logprobs = vocab_size;
    params.prompt_logprobs = vocab_size;
    return params;
}

/// Largest difference between the reference's log-probabilities and `greedy_with_whole_rows` over a whole prompt.
inline float prompt_difference_from(const golden::Prompt& expected, const RecordingSink& got) {
    const auto prompt = got.one<PromptEvent>();
    const auto tokens = got.tokens();
    if (!prompt || prompt->scores.size() != expected.tokens.size() || tokens.empty()) return INFINITY;
    float worst = 0;
    for (std::size_t row = 0; row < expected.tokens.size(); ++row) {
        const std::vector<float> logits = expected.logits.row(row);
        double total = 0;
        for (const float logit : logits) total += std::exp(static_cast<double>(logit));
        const bool last = row + 1 == expected.tokens.size();
        const auto& top = last ? tokens[0].scores->top : prompt->scores[row + 1]->top;
        if (top.size() != logits.size()) return INFINITY;
        for (const ScoredToken& token : top) {
            const double wanted = static_cast<double>(logits[static_cast<std::size_t>(token.id)]) - std::log(total);
            const auto difference = static_cast<float>(std::fabs(static_cast<double>(token.logprob) - wanted));
            if (!(difference <= worst)) worst = difference;
        }
    }
    return worst;
}

/// Largest difference from the reference's log-probabilities over the binding steps; infinite when a token differs.
inline float difference_from(const golden::Prompt& expected, const RecordingSink& got, int choice = 0) {
    const auto tokens = got.tokens(choice);
    float worst = 0;
    for (int step = 0; step < expected.safe_steps; ++step) {
        const auto s = static_cast<std::size_t>(step);
        if (s >= tokens.size() || tokens[s].id != expected.continuation[s] || !tokens[s].scores) return INFINITY;
        const auto& top = tokens[s].scores->top;
        for (std::size_t i = 0; i < expected.top5[s].ids.size(); ++i) {
            const auto found = std::find_if(
                top.begin(), top.end(), [&](const ScoredToken& token) { return token.id == expected.top5[s].ids[i]; });
            // Two candidates closer than the tolerance may trade places at the end of the list.
            const float logprob = found != top.end() ? found->logprob : top.back().logprob;
            worst = std::max(worst, std::fabs(logprob - expected.top5[s].logprobs[i]));
        }
    }
    return worst;
}

/// The same between two runs of the engine: as long as the best two tokens are at least 1e-3 apart, tokens must be
/// equal; the result is the largest difference of log-probabilities there.
inline float difference_between(const std::vector<TokenEvent>& expected, const std::vector<TokenEvent>& got) {
    if (expected.size() != got.size()) return INFINITY;
    float worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto& top = expected[i].scores->top;
        if (!golden::bitwise() && top[0].logprob - top[1].logprob < 1e-3F) return worst;
        if (expected[i].id != got[i].id) return INFINITY;
        worst = std::max(worst, std::fabs(expected[i].scores->chosen.logprob - got[i].scores->chosen.logprob));
    }
    return worst;
}

}  // namespace attune
