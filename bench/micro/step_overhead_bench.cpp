// What a step of the engine costs outside of the model: planning, building the batch, sampling, text, events.
//   step_overhead_bench --model models/smollm2 [--rows 32] [--steps 60] [--dtype bf16|f32] [--threads 2]
//                       [--temperature 0] [--top-p 1]
// Prints one JSON line: medians of steps in which so many requests decode, and the share outside of the model.

#include "engine/engine_impl.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/text/tokenizer.hpp"

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

/// Another model, and how long it was at work since it was last asked.
class TimedModel final : public Model {
public:
    explicit TimedModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}

    const ModelShape& shape() const override { return model_->shape(); }
    torch::Tensor forward(const Batch& batch, KvCache& kv, const ModuleSlots& slots) const override {
        return timed([&] { return model_->forward(batch, kv, slots); });
    }
    torch::Tensor forward_plain(const Batch& batch, const ModuleSlots& slots) const override {
        return timed([&] { return model_->forward_plain(batch, slots); });
    }
    torch::Tensor logits(const torch::Tensor& hidden, const Batch& batch, const ModuleSlots& slots,
                         std::span<const std::int32_t> rows) const override {
        return timed([&] { return model_->logits(hidden, batch, slots, rows); });
    }
    std::shared_ptr<BaseAudit> audit() const override { return model_->audit(); }
    std::shared_ptr<const BaseValues> base_values() const override { return model_->base_values(); }
    std::uint64_t weight_bytes() const override { return model_->weight_bytes(); }

    double take_ms() const { return std::exchange(ms_, 0); }

private:
    template <class Work>
    torch::Tensor timed(Work&& work) const {
        const auto begin = Clock::now();
        auto out = work();
        ms_ += std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        return out;
    }

    std::unique_ptr<Model> model_;
    mutable double ms_ = 0;
};

class NoSink final : public TokenSink {
public:
    void push(OutputEvent) override {}
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options{{"model", ""},     {"rows", "32"},   {"steps", "60"},
                                               {"dtype", "bf16"}, {"threads", "2"}, {"temperature", "0"},
                                               {"top-p", "1"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    const int rows = std::stoi(options["rows"]);
    const int steps = std::stoi(options["steps"]);
    const int prompt_tokens = 16;
    at::set_num_threads(1);
    set_worker_threads(std::stoi(options["threads"]));
    const torch::Dtype dtype = options["dtype"] == "f32" ? torch::kFloat32 : torch::kBFloat16;
    auto loaded = load_model(options["model"], {.dtype = dtype});
    auto tokenizer = Tokenizer::open(options["model"]);
    if (!loaded || !tokenizer) {
        std::fprintf(stderr, "%s\n", (loaded ? tokenizer.error() : loaded.error()).message.c_str());
        return 1;
    }
    auto timed = std::make_unique<TimedModel>(*std::move(loaded));
    const TimedModel& model = *timed;
    const auto vocab = static_cast<TokenId>(model.shape().vocab_size);
    EngineOptions engine_options;
    engine_options.max_sequences = rows;
    const int blocks = rows * (prompt_tokens + steps + 16 + 15) / 16 + rows;
    const EngineLayout layout{.kv_dtype = dtype, .slot_dtype = dtype, .kv_blocks = blocks};
    const auto engine = make_engine(std::move(timed), engine_options, layout, *std::move(tokenizer));

    for (int row = 0; row < rows; ++row) {
        auto job = std::make_unique<Job>();
        job->id = RequestId{static_cast<std::uint64_t>(row + 1)};
        for (int i = 0; i < prompt_tokens; ++i) job->prompt.push_back((1000 + 37 * row + 101 * i) % vocab);
        job->sampling.temperature = std::stod(options["temperature"]);
        job->sampling.top_p = std::stod(options["top-p"]);
        job->sampling.seed = static_cast<std::uint64_t>(row);
        job->sampling.max_tokens = steps + 16;
        job->sampling.ignore_eos = true;
        job->received = Clock::now();
        job->sink = std::make_shared<NoSink>();
        engine->add(std::move(job));
    }
    std::vector<double> whole;
    std::vector<double> outside;
    while (engine->has_work()) {
        model.take_ms();
        const auto begin = Clock::now();
        const StepReport report = engine->step();
        const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        if (report.rows != rows || report.prompt_rows > 0) continue;
        whole.push_back(ms);
        outside.push_back(ms - model.take_ms());
    }
    if (whole.empty()) {
        std::fprintf(stderr, "no step had %d rows\n", rows);
        return 1;
    }
    const nlohmann::json line{{"bench", "step_overhead"},
                              {"rows", rows},
                              {"dtype", options["dtype"]},
                              {"temperature", std::stod(options["temperature"])},
                              {"top_p", std::stod(options["top-p"])},
                              {"threads", std::stoi(options["threads"])},
                              {"steps", whole.size()},
                              {"step_ms", median(whole)},
                              {"outside_ms", median(outside)},
                              {"outside_share", median(outside) / median(whole)}};
    std::printf("%s\n", line.dump().c_str());
}
