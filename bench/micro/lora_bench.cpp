// What resident LoRA modules add to one step of SmolLM2-135M's shape: every layer and projection, no model.
//   lora_bench [--rows 32] [--modules 8] [--rank 16] [--dtype bf16|f32] [--projections qkvogud] [--threads 2] [--steps
//   20]
// Prints one JSON line: median and best milliseconds per step, processor time per step (all threads; what counts on a
// busy machine), and what it takes to install a module into a slot that was used before, as a ratio to copying its
// bytes (both from memory that other modules pushed out of the caches).

#include "bench/micro/random_module.hpp"
#include "engine/kernels/lora.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/module/module_slots.hpp"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

ModelShape smollm2() {
    ModelShape shape;
    shape.model_type = "llama";
    shape.hidden_size = 576;
    shape.intermediate_size = 1536;
    shape.heads = 9;
    shape.kv_heads = 3;
    shape.head_dim = 64;
    shape.vocab_size = 49152;
    shape.max_context = 2048;
    shape.layers.resize(30);
    return shape;
}

double milliseconds(Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

constexpr int kInstallRounds = 5;

SlotId install(ModuleSlots& slots, const ModulePtr& module) {
    const auto slot = slots.install(module);
    if (!slot) {
        std::fprintf(stderr, "%s\n", slot.error().message.c_str());
        std::exit(1);
    }
    return *slot;
}

/// The median of copying so many bytes, on one thread, between `places` places in turn.
double memcpy_ms(std::uint64_t bytes, std::size_t places) {
    const std::vector<char> from(bytes * places, 1);
    std::vector<char> to(bytes * places, 2);
    std::vector<double> times;
    for (int round = 0; round < kInstallRounds; ++round)
        for (std::size_t i = 0; i < places; ++i) {
            const auto start = Clock::now();
            std::memcpy(to.data() + i * bytes, from.data() + i * bytes, bytes);
            times.push_back(milliseconds(start));
        }
    return median(times);
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options{{"rows", "32"},    {"modules", "8"},          {"rank", "16"},
                                               {"dtype", "bf16"}, {"projections", kLetters}, {"threads", "2"},
                                               {"steps", "20"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    set_worker_threads(std::stoi(options["threads"]));
    at::set_num_threads(std::stoi(options["threads"]));
    const c10::InferenceMode guard;
    const ModelShape shape = smollm2();
    const int rows = std::stoi(options["rows"]);
    const int modules = std::stoi(options["modules"]);
    const int rank = std::stoi(options["rank"]);

    ModuleSlots::Options slot_options;
    slot_options.dtype = options["dtype"] == "f32" ? torch::kFloat32 : torch::kBFloat16;
    slot_options.max_rank = rank;
    std::vector<ModulePtr> loaded;
    for (int i = 0; i < std::max(modules, 1); ++i)
        loaded.push_back(make_module(shape, rank, options["projections"], static_cast<unsigned>(i + 1), 0.05F));
    const std::uint64_t bytes = ModuleSlots::bytes_needed(*loaded.front(), slot_options.dtype);
    slot_options.device_bytes = bytes * loaded.size();
    ModuleSlots slots(shape, slot_options, torch::kCPU);
    Batch batch;
    batch.segment_rows = {0};
    batch.segment_offsets = {0};
    std::vector<SlotId> installed;
    for (const ModulePtr& module : loaded) installed.push_back(install(slots, module));
    for (int row = 0; row < rows; ++row) {
        batch.tokens.push_back(0);
        batch.segment_rows.push_back(row + 1);
        if (modules > 0) batch.segment_slots.push_back({installed[static_cast<std::size_t>(row % modules)], 1.0F});
        batch.segment_offsets.push_back(static_cast<std::int32_t>(batch.segment_slots.size()));
    }

    std::map<int, torch::Tensor> inputs;
    std::map<int, torch::Tensor> outputs;
    for (int i = 0; i < kProjections; ++i) {
        const auto projection = static_cast<Projection>(i);
        inputs[i] = torch::randn({rows, shape.in_features(projection)});
        outputs[i] = torch::zeros({rows, shape.out_features(projection)});
    }
    std::vector<double> times;
    std::vector<double> processor;
    for (int step = 0; step < std::stoi(options["steps"]) + 2; ++step) {
        const auto start = Clock::now();
        const std::clock_t processor_start = std::clock();
        const auto plan = slots.plan(batch);
        for (int layer = 0; layer < shape.layer_count(); ++layer)
            for (int i = 0; i < kProjections; ++i) {
                const auto projection = static_cast<Projection>(i);
                if (slots.touches(layer, projection, *plan))
                    slots.apply(layer, projection, inputs[i], outputs[i], *plan);
            }
        if (step < 2) continue;  // first touches
        times.push_back(milliseconds(start));
        processor.push_back(1e3 * static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC);
    }
    std::vector<double> installs;
    for (int round = 0; round < kInstallRounds; ++round)
        for (std::size_t i = 0; i < loaded.size(); ++i) {
            slots.remove(installed[i]);
            const auto start = Clock::now();
            installed[i] = install(slots, loaded[i]);
            installs.push_back(milliseconds(start));
        }
    const nlohmann::json line{{"bench", "lora"},
                              {"kernels", lora_kernels().name},
                              {"dtype", options["dtype"]},
                              {"rows", rows},
                              {"modules", modules},
                              {"rank", rank},
                              {"projections", options["projections"]},
                              {"threads", worker_threads()},
                              {"module_bytes", bytes},
                              {"ms_per_step", median(times)},
                              {"best_ms_per_step", *std::min_element(times.begin(), times.end())},
                              {"cpu_ms_per_step", median(processor)},
                              {"install_ms", median(installs)},
                              {"install_of_memcpy", median(installs) / memcpy_ms(bytes, loaded.size())}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
}
