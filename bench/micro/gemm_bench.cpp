// Matrix products of a base's projections, as a step makes them: attune's resident weights beside libtorch's GEMM and
// beside what the machine allows, all measured in this run.
//   gemm_bench [--size smollm2|1b] [--dtypes bf16,bf16_dot,f32,int8,int4,int4_min] [--rows 1,4,8,32,128,512]
//   [--threads 2] [--rounds 5]
// Prints the limits and then one JSON line per product: operations per second, the share of the limit (the slower of
// multiply-adds and of reading the weight once), and the ratio to libtorch with the same weight dtype, of quantised
// weights and of bf16_dot (bfloat16 weights and activations) to our own bfloat16. Each product goes over enough copies
// of the weight that they come from memory, as in a step. attune and libtorch take turns; medians over the rounds.

#include "bench/micro/limits.hpp"
#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/quant_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/weights/weight.hpp"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

struct Product {
    const char* name;
    std::int64_t in;
    std::int64_t out;
};

const std::map<std::string, std::vector<Product>> kSizes{
    {"smollm2",
     {{"qkv", 576, 960}, {"o", 576, 576}, {"gate_up", 576, 3072}, {"down", 1536, 576}, {"head", 576, 49152}}},
    {"1b",
     {{"qkv", 2048, 3072}, {"o", 2048, 2048}, {"gate_up", 2048, 16384}, {"down", 8192, 2048}, {"head", 2048, 128256}}},
};

constexpr std::int64_t kColdBytes = 96 << 20;  // beyond any last-level cache here
constexpr double kRoundSeconds = 0.05;

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
}

Quant quant_of(const std::string& name) {
    return name == "int8"       ? Quant::int8
           : name == "int4"     ? Quant::int4
           : name == "int4_min" ? Quant::int4_min
                                : Quant::none;
}

/// A resident weight whose every page is its own: pages never written to would all be one.
std::unique_ptr<Weight> make_weight(const Product& product, torch::Dtype dtype, Quant quant,
                                    const torch::Tensor& values, bool bf16_activations = false) {
    auto weight = std::make_unique<Weight>(
        std::vector<Weight::Part>{{product.name, product.out, 0, quant}}, product.in,
        Weight::Options{.layout = WeightLayout::panels, .dtype = dtype, .bf16_activations = bf16_activations});
    if (quant == Quant::none) {
        weight->overwrite_rows(0, 0, values);
    } else {
        for (std::uint64_t byte = 2048; byte < weight->bytes(); byte += 4096) weight->flip_bit(0, byte);
    }
    return weight;
}

/// Seconds per product: whole passes over the copies until kRoundSeconds are over.
template <class Multiply>
double seconds_per_product(std::size_t copies, const Multiply& multiply) {
    const auto begin = Clock::now();
    std::size_t done = 0;
    double seconds = 0;
    do {
        for (std::size_t copy = 0; copy < copies; ++copy) multiply(copy);
        done += copies;
        seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (seconds < kRoundSeconds);
    return seconds / static_cast<double>(done);
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options{
        {"size", "smollm2"}, {"dtypes", "bf16,f32"}, {"rows", "1,4,8,32,128,512"}, {"threads", "2"}, {"rounds", "5"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    const auto products = kSizes.find(options["size"]);
    if (products == kSizes.end()) {
        std::fprintf(stderr, "gemm_bench: --size is smollm2 or 1b\n");
        return 2;
    }
    const int threads = std::stoi(options["threads"]);
    set_worker_threads(threads);
    at::set_num_threads(threads);
    const bench::Limits limits = bench::measure_limits(threads);
    std::puts(nlohmann::json{{"bench", "limits"},
                             {"threads", threads},
                             {"fma_gflops", limits.fma_gflops},
                             {"bf16_dot_gops", limits.bf16_dot_gops},
                             {"int8_dot_gops", limits.int8_dot_gops},
                             {"read_gb_per_s", limits.read_gb_per_s},
                             {"copy_gb_per_s", limits.copy_gb_per_s}}
                  .dump()
                  .c_str());

    torch::manual_seed(1);
    for (const std::string& dtype_name : split(options["dtypes"])) {
        const torch::Dtype dtype = dtype_name == "f32" ? torch::kFloat32 : torch::kBFloat16;
        const Quant quant = quant_of(dtype_name);
        const bool quantised = quant != Quant::none;
        const bool dots = dtype_name == "bf16_dot";
        const double gops = quantised && limits.int8_dot_gops > 0 ? limits.int8_dot_gops
                            : dots                                ? limits.bf16_dot_gops
                                                                  : limits.fma_gflops;
        if (dots && bf16_dot_kernels() == nullptr) continue;
        for (const Product& product : products->second) {
            const auto bytes = static_cast<std::int64_t>(
                quantised ? static_cast<std::uint64_t>(product.out) * packed_row_bytes(quant, product.in)
                          : static_cast<std::uint64_t>(product.in * product.out) * torch::elementSize(dtype));
            const std::size_t copies = static_cast<std::size_t>(std::max<std::int64_t>(1, kColdBytes / bytes));
            // Weights are made outside of inference mode, as the model makes them.
            std::vector<std::unique_ptr<Weight>> ours;
            std::vector<std::unique_ptr<Weight>> full;  // of quantised ones, to compare with
            std::vector<torch::Tensor> theirs;          // of the others
            for (std::size_t copy = 0; copy < copies; ++copy) {
                const torch::Tensor values = torch::randn({product.out, product.in}) * 0.05F;
                ours.push_back(make_weight(product, dtype, quant, values, dots));
                if (quantised || dots) {
                    full.push_back(make_weight(product, dtype, Quant::none, values));
                } else {
                    theirs.push_back(values.to(dtype));
                }
            }
            const c10::InferenceMode guard;
            for (const std::string& rows_name : split(options["rows"])) {
                const int rows = std::stoi(rows_name);
                const torch::Tensor x = torch::randn({rows, product.in});
                const torch::Tensor x_theirs = x.to(dtype);
                std::vector<double> our_seconds;
                std::vector<double> their_seconds;
                for (int round = 0; round < std::stoi(options["rounds"]); ++round) {
                    our_seconds.push_back(
                        seconds_per_product(copies, [&](std::size_t copy) { ours[copy]->matmul(x); }));
                    their_seconds.push_back(seconds_per_product(copies, [&](std::size_t copy) {
                        if (quantised || dots) {
                            full[copy]->matmul(x);
                        } else {
                            torch::linear(x_theirs, theirs[copy]);
                        }
                    }));
                }
                const double seconds = bench::median(our_seconds);
                const double operations = 2.0 * rows * static_cast<double>(product.in * product.out);
                const double least =
                    bench::least_seconds(operations, gops, static_cast<double>(bytes), limits.read_gb_per_s);
                std::puts(nlohmann::json{
                    {"bench", "gemm"},
                    {"kernels", quantised ? quant_kernels().name
                                : dots    ? bf16_dot_kernels()->name
                                          : cpu_kernels().name},
                    {"product", product.name},
                    {"in", product.in},
                    {"out", product.out},
                    {"dtype", dtype_name},
                    {"rows", rows},
                    {"gflops", operations / seconds / 1e9},
                    {"of_limit", least / seconds},
                    {quantised || dots ? "of_bf16" : "of_libtorch", bench::median(their_seconds) / seconds}}
                              .dump()
                              .c_str());
                std::fflush(stdout);
            }
        }
    }
    return 0;
}
