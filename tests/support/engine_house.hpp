#pragma once

#include "engine/engine.hpp"
#include "support/fake_model.hpp"
#include "support/fake_tokenizer.hpp"
#include "support/recording_sink.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// An engine over FakeModel, with a clock that moves when told.
struct EngineHouse {
    struct Size {
        int blocks = 64;
        int max_sequences = 16;
        int step_tokens = 64;
        std::vector<TokenId> end_tokens = {};
        bool with_tokenizer = true;
        double slo_itl_ms = 0;
        bool park_preempted = false;
    };

    EngineHouse() : EngineHouse(Size{}) {}
    explicit EngineHouse(Size size) {
        EngineOptions options;
        options.max_sequences = size.max_sequences;
        options.step_tokens = size.step_tokens;
        options.module_bytes = 1 << 20;
        options.end_tokens = std::move(size.end_tokens);
        options.slo_itl_ms = size.slo_itl_ms;
        options.park_preempted = size.park_preempted;
        options.now = [this] { return time + std::accumulate(knobs->rows.begin(), knobs->rows.end(), 0) * row_time; };
        std::shared_ptr<const Tokenizer> tokenizer;
        if (size.with_tokenizer)
            tokenizer = std::make_shared<FakeTokenizer>(std::map<TokenId, std::string>{{300, "<end>"}},
                                                        std::vector<TokenId>{300});
        engine = make_fake_engine(knobs, options, size.blocks, std::move(tokenizer));
    }

    static SamplingParams greedy(int max_tokens) {
        SamplingParams params;
        params.temperature = 0;
        params.max_tokens = max_tokens;
        params.seed = 0;
        return params;
    }

    std::unique_ptr<Job> job(int id, std::string_view prompt, SamplingParams params) {
        auto made = std::make_unique<Job>();
        made->id = RequestId{static_cast<std::uint64_t>(id)};
        for (const char c : prompt) made->prompt.push_back(static_cast<unsigned char>(c));
        made->sampling = std::move(params);
        made->received = time;
        made->sink = std::make_shared<RecordingSink>();
        return made;
    }

    std::shared_ptr<RecordingSink> add(std::unique_ptr<Job> made) {
        auto sink = std::static_pointer_cast<RecordingSink>(made->sink);
        engine->add(std::move(made));
        return sink;
    }
    std::shared_ptr<RecordingSink> add(int id, std::string_view prompt, SamplingParams params) {
        return add(job(id, prompt, std::move(params)));
    }

    /// Steps until nothing is left, a millisecond each; false when that takes too long.
    bool run(int most_steps = 2000) {
        for (int i = 0; i < most_steps && engine->has_work(); ++i) step();
        return !engine->has_work();
    }

    StepReport step() {
        StepReport report = engine->step();
        time += std::chrono::milliseconds(1);
        ended.insert(ended.end(), report.ended.begin(), report.ended.end());
        preempted += report.preempted;
        return report;
    }

    static std::string generation_of(std::string name) {
        name.resize(64, '0');
        return name;
    }

    /// A resident module called `name`; FakeModel only looks at its weight.
    JobModule module(const std::string& name, double weight = 1.0) {
        auto made = std::make_shared<Module>();
        made->id = {name, generation_of(name)};
        made->kind = "lora";
        made->pairs.push_back({0, Projection::q, 1, 1.0F, std::vector<float>(4, 0.0F), std::vector<float>(4, 0.0F)});
        made->max_rank = 1;
        const auto slot = engine->install(made);
        if (!slot) throw std::runtime_error(slot.error().message);
        return {*slot, {made->id, weight, false}};
    }

    bool all_free() const {
        const EngineStats stats = engine->stats();
        return stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.total_blocks;
    }

    TimePoint time = TimePoint{} + std::chrono::hours(1);
    std::chrono::microseconds row_time{0};  ///< what a row of a step takes, beside the millisecond of step()
    std::shared_ptr<FakeModelKnobs> knobs = std::make_shared<FakeModelKnobs>();
    std::unique_ptr<Engine> engine;
    std::vector<EndedRequest> ended;
    int preempted = 0;
};

}  // namespace attune
