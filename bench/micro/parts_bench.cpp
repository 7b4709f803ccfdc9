// What a step and its neighbours do besides matrix products: attention over the paged cache, sampling, hashing. Each
// beside what the machine allows, measured in this run.
//   parts_bench [--threads 2] [--rounds 5]
// Prints the limits and then one JSON line per case. `of_limit` is the share of: the slower of reading K and V once and
// of the multiply-adds (attention), of reading the row once (sampling, one thread, as the executor samples; rows come
// from memory, as after a head's product), of reading (hashes, one thread). Torch-free; medians over the rounds.

#include "bench/micro/limits.hpp"
#include "engine/files/hash.hpp"
#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/sample/sampler.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

constexpr int kHeads = 9;  // SmolLM2-135M's
constexpr int kKvHeads = 3;
constexpr int kHeadDim = 64;
constexpr int kVocab = 49152;
constexpr double kRoundSeconds = 0.05;

template <class Work>
double median_seconds(int rounds, const Work& work) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
        const auto begin = Clock::now();
        int done = 0;
        double took = 0;
        do {
            work();
            ++done;
            took = std::chrono::duration<double>(Clock::now() - begin).count();
        } while (took < kRoundSeconds);
        seconds.push_back(took / done);
    }
    return bench::median(seconds);
}

void print(const nlohmann::json& line) {
    std::puts(line.dump().c_str());
    std::fflush(stdout);
}

/// `sequences` times `rows` query rows behind `context` positions, each sequence with blocks of its own.
void attention(const bench::Limits& limits, int rounds, const char* kind, int sequences, int context, int rows) {
    const int blocks = (context + rows + kBlockTokens - 1) / kBlockTokens;
    const auto cache = static_cast<std::size_t>(sequences * blocks) * kKvHeads * kHeadDim * kBlockTokens;
    const std::vector<Bf16> keys(cache, to_bf16(0.01F));
    const std::vector<Bf16> values(cache, to_bf16(0.02F));
    const int total = sequences * rows;
    const std::vector<float> q(static_cast<std::size_t>(total) * kHeads * kHeadDim, 0.03F);
    std::vector<float> out(q.size());
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> first_block;
    std::vector<std::int32_t> table;
    double seen = 0;  // pairs of query row and position
    for (int s = 0; s < sequences; ++s) {
        for (int b = 0; b < blocks; ++b) table.push_back(s * blocks + b);
        for (int r = 0; r < rows; ++r) {
            positions.push_back(context + r);
            first_block.push_back(s * blocks);
            seen += context + r + 1;
        }
    }
    AttentionCall call;
    call.q = q.data();
    call.q_stride = kHeads * kHeadDim;
    call.out = out.data();
    call.out_stride = kHeads * kHeadDim;
    call.heads = kHeads;
    call.kv_heads = kKvHeads;
    call.head_dim = kHeadDim;
    call.value_dim = kHeadDim;
    call.scale = 0.125F;
    call.keys = keys.data();
    call.values = values.data();
    call.positions = positions.data();
    call.first_block = first_block.data();
    call.blocks = table.data();
    const double operations = 4.0 * seen * kHeads * kHeadDim;  // scores and sums, a multiply-add each
    const double bytes = 2.0 * sequences * (context + rows) * kKvHeads * kHeadDim * sizeof(Bf16);
    const auto measure = [&](const char* name, const std::string& what, double gops, auto run) {
        const double seconds = median_seconds(rounds, [&] {
            const std::int64_t items = std::int64_t{total} * kKvHeads;
            parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end) {  // as KvCache does
                std::vector<float> scratch(attention_scratch(context + rows, kHeadDim));
                run(call, items - end, items - begin, scratch.data());
            });
        });
        print({{"bench", "attention"},
               {"kernels", name},
               {"kind", what},
               {"sequences", sequences},
               {"context", context},
               {"rows", rows},
               {"of_limit", bench::least_seconds(operations, gops, bytes, limits.read_gb_per_s) / seconds}});
    };
    measure(cpu_kernels().name, kind, limits.fma_gflops, cpu_kernels().attend_bf16);
    if (const Bf16DotKernels* dots = bf16_dot_kernels())
        measure(dots->name, std::string(kind) + ", bf16 activations", limits.bf16_dot_gops, dots->attend);
}

void sampling(const bench::Limits& limits, int rounds, const char* kind, const SamplingParams& params) {
    constexpr int kRows = 256;  // 48 MiB: in no cache
    std::mt19937 random(7);
    std::normal_distribution<float> logit(0.0F, 3.0F);
    std::vector<float> rows(static_cast<std::size_t>(kRows) * kVocab);
    for (float& value : rows) value = logit(random);
    Sampler sampler(kVocab);
    std::size_t row = 0;
    int index = 0;
    const double seconds = median_seconds(rounds, [&] {
        const std::span<const float> logits(rows.data() + row * kVocab, kVocab);
        sampler.sample(logits, {.params = params, .seed = 1, .token_index = index++});
        row = (row + 1) % kRows;
    });
    print({{"bench", "sampling"},
           {"kind", kind},
           {"vocab", kVocab},
           {"of_limit", kVocab * sizeof(float) / (limits.read_gb_per_s * 1e9) / seconds}});
}

template <class Hash>
void hashing(const bench::Limits& limits, int rounds, const char* kind) {
    const std::vector<std::byte> bytes(std::size_t{64} << 20, std::byte{1});
    const double seconds = median_seconds(rounds, [&] {
        Hash hash;
        hash.update(std::span<const std::byte>(bytes));
        hash.hex();
    });
    print({{"bench", "hash"},
           {"kind", kind},
           {"of_limit", static_cast<double>(bytes.size()) / (limits.read_gb_per_s * 1e9) / seconds}});
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options{{"threads", "2"}, {"rounds", "5"}};
    for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
    const int threads = std::stoi(options["threads"]);
    const int rounds = std::stoi(options["rounds"]);
    set_worker_threads(threads);
    const bench::Limits all = bench::measure_limits(threads);
    const bench::Limits one = bench::measure_limits(1);
    attention(all, rounds, "decode", 32, 150, 1);
    attention(all, rounds, "decode", 32, 1000, 1);
    attention(all, rounds, "prompt", 1, 0, 512);
    SamplingParams greedy;
    greedy.temperature = 0;
    sampling(one, rounds, "greedy", greedy);
    SamplingParams drawn;
    drawn.temperature = 1;
    sampling(one, rounds, "temperature", drawn);
    drawn.top_p = 0.9F;
    sampling(one, rounds, "temperature and top_p 0.9", drawn);
    drawn.top_k = 40;
    sampling(one, rounds, "temperature, top_k 40 and top_p 0.9", drawn);
    hashing<Xxh128>(one, rounds, "XXH3-128");
    hashing<Sha256>(one, rounds, "SHA-256");
    return 0;
}
