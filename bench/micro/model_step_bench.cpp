// One step of the model alone: decode rows at a given context, or one prompt chunk. No server, no sampler.
//   model_step_bench --model PATH [--dtype f32|bf16|int8|int4|auto] [--rows 32] [--context 150] [--prompt N]
//                    [--threads 2] [--steps 20] [--kernels auto|torch] [--activations f32|bf16] [--profile 1]
//                    [--modules 32 [--kind lora|dora|miss|state|prefix] [--projections qkvo] [--rank 16]]
// Prints one JSON line: median and best milliseconds per step, rows per second, and the processor time of the median
// step, which on a busy machine says more (with one thread; idle threads spin). With modules (bf16 slots, row i has
// module i mod N) steps with and without them take turns; `ratio` is their throughput to the base's, by the median and
// by processor time. With --profile a table before it says where a step's time went, in microseconds.

#include "bench/micro/random_module.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/model/model.hpp"
#include "engine/model/step_profile.hpp"

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

/// `sequences` sequences with `context` positions filled, each adding `rows` tokens; logits of each one's last row.
Batch make_batch(int sequences, int context, int rows, int vocab) {
    Batch batch;
    batch.segment_rows = {0};
    batch.segment_offsets = {0, 0};
    const int blocks = (context + rows + kBlockTokens - 1) / kBlockTokens;
    for (int s = 0; s < sequences; ++s) {
        batch.sequences.push_back({s * rows, rows, context, s * blocks, blocks});
        for (int b = 0; b < blocks; ++b) batch.blocks.push_back(BlockId{s * blocks + b});
        for (int r = 0; r < rows; ++r) {
            batch.tokens.push_back((s * 131 + r * 7 + 11) % vocab);
            batch.positions.push_back(context + r);
        }
        batch.logit_rows.push_back((s + 1) * rows - 1);
    }
    batch.segment_rows.push_back(batch.rows());
    return batch;
}

std::map<std::string, std::string> parse(int argc, char** argv) {
    std::map<std::string, std::string> options{
        {"dtype", "bf16"},       {"rows", "32"},      {"context", "150"},    {"prompt", "0"},  {"threads", "2"},
        {"steps", "20"},         {"kernels", "auto"}, {"profile", "0"},      {"modules", "0"}, {"kind", "lora"},
        {"projections", "qkvo"}, {"rank", "16"},      {"activations", "f32"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    return options;
}

/// Wall and processor seconds of one kind of step.
struct Times {
    std::vector<double> wall = {};
    std::vector<double> processor = {};
    StepProfile profile = {};

    static double median(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
};

/// One segment per row, row i with module i mod N. Each row's prefix, if that is what its module is, stands before its
/// context.
void put_modules(Batch& batch, ModuleSlots& slots, const std::vector<ModulePtr>& modules) {
    std::vector<SlotId> installed;
    for (const ModulePtr& module : modules) {
        auto slot = slots.install(module);
        if (!slot) {
            std::fprintf(stderr, "%s\n", slot.error().message.c_str());
            std::exit(1);
        }
        installed.push_back(*slot);
    }
    batch.segment_rows = {0};
    batch.segment_offsets = {0};
    for (int row = 0; row < batch.rows(); ++row) {
        batch.segment_rows.push_back(row + 1);
        batch.segment_slots.push_back({installed[static_cast<std::size_t>(row) % installed.size()], 1.0F});
        batch.segment_offsets.push_back(row + 1);
    }
}

void step(const Model& model, const Batch& batch, KvCache& kv, const ModuleSlots& slots) {
    const torch::Tensor hidden = model.forward(batch, kv, slots);
    if (static_cast<int>(batch.logit_rows.size()) == batch.rows()) {
        model.logits(hidden, batch, slots, batch.logit_rows);
        return;
    }
    const torch::Tensor wanted =
        torch::tensor(std::vector<std::int64_t>(batch.logit_rows.begin(), batch.logit_rows.end()));
    model.logits(hidden.index_select(0, wanted), batch, slots, batch.logit_rows);
}

void print_profile(const char* title, const Times& times) {
    double sum = 0;
    const auto count = static_cast<double>(times.wall.size());
    for (const double seconds : times.profile.seconds()) sum += seconds;
    std::printf("%s: microseconds per step\n", title);
    for (std::size_t part = 0; part < kStepParts; ++part)
        if (const double seconds = times.profile.seconds()[part]; seconds > 0)
            std::printf("  %-16s %9.1f  %5.1f %%\n", kStepPartNames[part], seconds / count * 1e6, 100 * seconds / sum);
    std::printf("  %-16s %9.1f\n", "sum", sum / count * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
    auto options = parse(argc, argv);
    if (!options.contains("model")) {
        std::fprintf(stderr, "usage: model_step_bench --model PATH [--dtype f32|bf16|int8|int4|auto] [--rows N] ...\n");
        return 2;
    }
    set_worker_threads(std::stoi(options["threads"]));
    at::set_num_threads(options["kernels"] == "torch" ? std::stoi(options["threads"]) : 1);
    const bool torch_kernels = options["kernels"] == "torch";
    const auto form = weight_form(options["dtype"]);
    if (!form) {
        std::fprintf(stderr, "--dtype is f32, bf16, int8, int4 or auto\n");
        return 2;
    }
    const torch::Dtype dtype = form->first;
    auto loaded = load_model(options["model"],
                             {torch::kCPU, dtype, torch_kernels, form->second, options["activations"] == "bf16"});
    if (!loaded) {
        std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
        return 1;
    }
    Model& model = **loaded;
    const int prompt = std::stoi(options["prompt"]);
    const int rows = std::stoi(options["rows"]);
    const int context = std::stoi(options["context"]);
    const int vocab = model.shape().vocab_size;
    const Batch batch = prompt > 0 ? make_batch(1, 0, prompt, vocab) : make_batch(rows, context, 1, vocab);
    std::vector<ModulePtr> modules;
    std::uint64_t slot_bytes = 1 << 20;
    for (int i = 0; i < std::stoi(options["modules"]); ++i) {
        modules.push_back(make_module(model.shape(), std::stoi(options["rank"]), options["projections"],
                                      static_cast<unsigned>(i + 1), 0.02F, options["kind"]));
        slot_bytes += ModuleSlots::bytes_needed(*modules.back(), torch::kBFloat16);
    }
    ModuleSlots slots(model.shape(), {slot_bytes, torch::kBFloat16, 64}, torch::kCPU);
    // Of their own for steps without modules: slots keep the plan of the step before, as a server's steps find it.
    const ModuleSlots none(model.shape(), {1 << 20, torch::kBFloat16, 64}, torch::kCPU);
    const int prefix = modules.empty() ? 0 : modules.front()->virtual_tokens();
    Batch with_modules = prompt > 0 ? batch : make_batch(rows, context + prefix, 1, vocab);
    if (!modules.empty()) put_modules(with_modules, slots, modules);
    KvCache kv(model.shape(), static_cast<int>(with_modules.blocks.size()), dtype, torch::kCPU, torch_kernels,
               options["activations"] == "bf16");

    const c10::InferenceMode guard;
    Times base;
    Times changed;
    for (int i = 0; i < std::stoi(options["steps"]) + 1; ++i) {
        for (Times* times : {&base, &changed}) {
            if (times == &changed && modules.empty()) continue;
            if (options["profile"] == "1" && i > 0) model.set_profile(&times->profile);
            const auto begin = Clock::now();
            const std::clock_t used = std::clock();
            step(model, times == &base ? batch : with_modules, kv, times == &base ? none : slots);
            // The first step touches fresh memory.
            if (i == 0) continue;
            times->wall.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
            times->processor.push_back(static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC);
        }
    }
    if (options["profile"] == "1") {
        print_profile("base", base);
        if (!modules.empty()) print_profile("modules", changed);
    }
    const double median = Times::median(base.wall);
    const double best = *std::min_element(base.wall.begin(), base.wall.end());
    nlohmann::json line{{"bench", "model_step"},
                        {"device", "cpu"},
                        {"kernels", torch_kernels ? "torch" : cpu_kernels().name},
                        {"dtype", options["dtype"]},
                        {"weight_mb", static_cast<double>(model.weight_bytes()) / 1e6},
                        {"hidden", model.shape().hidden_size},
                        {"layers", model.shape().layer_count()},
                        {"threads", std::stoi(options["threads"])},
                        {"kind", prompt > 0 ? "prompt" : "decode"},
                        {"rows", batch.rows()},
                        {"context", prompt > 0 ? 0 : context},
                        {"median_ms", median * 1e3},
                        {"best_ms", best * 1e3},
                        {"processor_ms", Times::median(base.processor) * 1e3},
                        {"rows_per_s", batch.rows() / median},
                        {"best_rows_per_s", batch.rows() / best}};
    if (!modules.empty()) {
        line["modules"] = options["modules"] + " " + options["kind"];
        if (options["kind"] != "state" && options["kind"] != "prefix")
            line["modules"] =
                line["modules"].get<std::string>() + " r" + options["rank"] + " " + options["projections"];
        line["module_bytes"] = slots.used_bytes();
        line["modules_median_ms"] = Times::median(changed.wall) * 1e3;
        line["ratio"] = median / Times::median(changed.wall);
        line["best_ratio"] = best / *std::min_element(changed.wall.begin(), changed.wall.end());
        line["processor_ratio"] = Times::median(base.processor) / Times::median(changed.processor);
    }
    std::puts(line.dump().c_str());
    return 0;
}
