// What merging a LoRA module into a model's weights and restoring them takes, beside a memcpy of the bytes touched.
//   merge_bench --model models/smollm2 [--rank 16] [--dtype bf16|f32] [--projections qkvogud] [--threads 2]
//   [--restore-from file|clone] [--rounds 7]
// Prints one JSON line: best milliseconds of each; the ratios to memcpy without the hashes (a merge hashes what it
// touches before and after, a restore after); and how far memory rose above what was there, beside a layer's bytes.

#include "bench/micro/random_module.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/model/base_merge.hpp"
#include "engine/model/llama_model.hpp"

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

/// A figure of /proc/self/status in bytes, e.g. "VmRSS:".
std::uint64_t status_bytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word) {
        if (word == name) status >> kib;
    }
    return kib << 10;
}

template <class Work>
double milliseconds_of(Work&& work) {
    const auto begin = Clock::now();
    work();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options{
        {"model", ""},   {"rank", "16"},          {"dtype", "bf16"}, {"threads", "2"}, {"projections", kLetters},
        {"rounds", "7"}, {"restore-from", "file"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    at::set_num_threads(1);
    set_worker_threads(std::stoi(options["threads"]));
    const c10::InferenceMode guard;
    auto loaded =
        load_model(options["model"], {.dtype = options["dtype"] == "f32" ? torch::kFloat32 : torch::kBFloat16});
    if (!loaded) {
        std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
        return 1;
    }
    Model& model = **loaded;
    const bool clone = options["restore-from"] == "clone";
    BaseMerge merge(model, clone);
    const std::vector<MergedModule> modules{
        {make_module(model.shape(), std::stoi(options["rank"]), options["projections"], 1, 0.01F), 1.0F}};
    const std::uint64_t bytes = merge.touched_bytes(modules);

    double copy_ms = 1e9;
    double merge_ms = 1e9;
    double restore_ms = 1e9;
    double hash_ms = 1e9;
    std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 2);
    const std::int64_t slice = 1 << 20;
    const auto copy = [&](std::int64_t begin, std::int64_t end) {
        const auto first = static_cast<std::size_t>(begin * slice);
        const auto last = std::min(static_cast<std::size_t>(end * slice), from.size());
        std::memcpy(to.data() + first, from.data() + first, last - first);
    };
    const std::int64_t slices = (static_cast<std::int64_t>(bytes) + slice - 1) / slice;
    // The second half of the rounds tells what is needed beyond what is always there.
    std::uint64_t before = 0;
    const int rounds = std::stoi(options["rounds"]);
    for (int round = 0; round < rounds; ++round) {
        if (round == rounds / 2) {
            std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts anew
            before = status_bytes("VmRSS:");
        }
        copy_ms = std::min(copy_ms, milliseconds_of([&] { parallel_for(slices, 1, copy); }));
        bool good = true;
        merge_ms = std::min(merge_ms, milliseconds_of([&] { good = static_cast<bool>(merge.merge(modules)) && good; }));
        hash_ms = std::min(hash_ms, milliseconds_of([&] {
                               for (int layer = 0; layer < model.shape().layer_count(); ++layer)
                                   for (int i = 0; i < kProjections; ++i) {
                                       if (options["projections"].find(kLetters[i]) == std::string::npos) continue;
                                       const auto place = model.projection_weight(layer, static_cast<Projection>(i));
                                       good = good && !place.weight->hash(place.part).empty();
                                   }
                           }));
        restore_ms = std::min(restore_ms, milliseconds_of([&] { good = static_cast<bool>(merge.restore()) && good; }));
        if (!good) {
            std::fprintf(stderr, "the merge failed\n");
            return 1;
        }
    }
    const nlohmann::json line{{"bench", "merge"},
                              {"model", model.shape().model_type},
                              {"dtype", options["dtype"]},
                              {"rank", std::stoi(options["rank"])},
                              {"projections", options["projections"]},
                              {"threads", worker_threads()},
                              {"restore_from", options["restore-from"]},
                              {"touched_bytes", bytes},
                              {"memcpy_ms", copy_ms},
                              {"hash_ms", hash_ms},
                              {"merge_ms", merge_ms},
                              {"restore_ms", restore_ms},
                              {"layer_bytes", bytes / static_cast<std::uint64_t>(model.shape().layer_count())},
                              {"peak_bytes", status_bytes("VmHWM:") - before},
                              {"merge_ratio", (merge_ms - 2 * hash_ms) / copy_ms},
                              {"restore_ratio", (restore_ms - hash_ms) / copy_ms}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
}
