// One step of the model alone: decode rows at a given context, or one prompt chunk. No server, no sampler.
//   model_step_bench --model PATH [--dtype f32|bf16|int8|int4|auto] [--rows 32] [--context 150] [--prompt N] [--threads
//   2]
//                    [--steps 20] [--kernels auto|torch]
// Prints one JSON line: median and best milliseconds per step, rows per second, and the processor time of the median
// step, which on a busy machine says more (with one thread; idle threads spin).

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/model/model.hpp"

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
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
    std::map<std::string, std::string> options{{"dtype", "bf16"}, {"rows", "32"},  {"context", "150"}, {"prompt", "0"},
                                               {"threads", "2"},  {"steps", "20"}, {"kernels", "auto"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    return options;
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
    auto loaded = load_model(options["model"], {torch::kCPU, dtype, torch_kernels, form->second});
    if (!loaded) {
        std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
        return 1;
    }
    const Model& model = **loaded;
    const int prompt = std::stoi(options["prompt"]);
    const int rows = std::stoi(options["rows"]);
    const int context = std::stoi(options["context"]);
    const int vocab = model.shape().vocab_size;
    const Batch batch = prompt > 0 ? make_batch(1, 0, prompt, vocab) : make_batch(rows, context, 1, vocab);
    const ModuleSlots slots(model.shape(), {1 << 20, torch::kFloat32, 64}, torch::kCPU);
    KvCache kv(model.shape(), static_cast<int>(batch.blocks.size()), dtype, torch::kCPU, torch_kernels);

    const c10::InferenceMode guard;
    const torch::Tensor wanted =
        torch::tensor(std::vector<std::int64_t>(batch.logit_rows.begin(), batch.logit_rows.end()));
    std::vector<double> seconds;
    std::vector<double> processor;
    for (int step = 0; step < std::stoi(options["steps"]) + 1; ++step) {
        const auto begin = Clock::now();
        const std::clock_t used = std::clock();
        model.logits(model.forward(batch, kv, slots).index_select(0, wanted), batch, slots, batch.logit_rows);
        // The first step touches fresh memory.
        if (step == 0) continue;
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        processor.push_back(static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC);
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(processor.begin(), processor.end());
    const double median = seconds[seconds.size() / 2];
    const nlohmann::json line{{"bench", "model_step"},
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
                              {"best_ms", seconds.front() * 1e3},
                              {"processor_ms", processor[processor.size() / 2] * 1e3},
                              {"rows_per_s", batch.rows() / median},
                              {"best_rows_per_s", batch.rows() / seconds.front()}};
    std::puts(line.dump().c_str());
    return 0;
}
