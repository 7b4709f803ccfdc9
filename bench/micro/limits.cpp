#include "bench/micro/limits.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attune::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRuns = 5;
constexpr std::int64_t kRounds = 4'000'000;
constexpr int kChains = 20;  // more than latency times width; with two operands they still fit 32 registers
constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr std::size_t kAhead = std::size_t{16} << 10;

/// Keeps a result, so that the loop that made it is not thrown away.
template <class T>
void keep(const T& value) {
    asm volatile("" : : "r,m"(value) : "memory");
}

/// Seconds until all threads have done `work(thread)`, started together; the best of kRuns.
double seconds_together(int threads, const std::function<void(int)>& work) {
    double best = 1e30;
    for (int run = 0; run < kRuns; ++run) {
        std::atomic<int> ready{0};
        std::vector<double> took(static_cast<std::size_t>(threads));
        std::vector<std::thread> helpers;
        for (int t = 0; t < threads; ++t)
            helpers.emplace_back([&, t] {
                ++ready;
                while (ready.load() < threads) std::this_thread::yield();
                const auto begin = Clock::now();
                work(t);
                took[static_cast<std::size_t>(t)] = std::chrono::duration<double>(Clock::now() - begin).count();
            });
        for (std::thread& helper : helpers) helper.join();
        best = std::min(best, *std::max_element(took.begin(), took.end()));
    }
    return best;
}

#if defined(__x86_64__)

// Each loop returns the operations it has done. The empty asm makes the operands unknown, so that nothing is folded.

__attribute__((target("avx512f"))) double multiply_add_512() {
    __m512 sums[kChains];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    __m512 a = _mm512_set1_ps(0.5F);
    __m512 b = _mm512_set1_ps(0.25F);
    for (std::int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 32
        for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
    }
    __m512 all = sums[0];
    for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
    keep(_mm512_reduce_add_ps(all));
    return static_cast<double>(kRounds) * kChains * 16 * 2;
}

__attribute__((target("avx2,fma"))) double multiply_add_256() {
    constexpr int kFew = 12;  // of 16 registers
    __m256 sums[kFew];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    __m256 a = _mm256_set1_ps(0.5F);
    __m256 b = _mm256_set1_ps(0.25F);
    for (std::int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 32
        for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
    }
    __m256 all = sums[0];
    for (int i = 1; i < kFew; ++i) all = _mm256_add_ps(all, sums[i]);
    keep(_mm256_cvtss_f32(all));
    return static_cast<double>(kRounds) * kFew * 8 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) double bf16_dot() {
    __m512 sums[kChains];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    __m512i a = _mm512_set1_epi16(0x3f00);
    __m512i b = _mm512_set1_epi16(0x3e80);
    for (std::int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 32
        for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
    __m512 all = sums[0];
    for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
    keep(_mm512_reduce_add_ps(all));
    return static_cast<double>(kRounds) * kChains * 32 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) double int8_dot() {
    __m512i sums[kChains];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    __m512i a = _mm512_set1_epi8(3);
    __m512i b = _mm512_set1_epi8(-2);
    for (std::int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 32
        for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    }
    __m512i all = sums[0];
    for (int i = 1; i < kChains; ++i) all = _mm512_add_epi32(all, sums[i]);
    keep(_mm512_reduce_add_epi32(all));
    return static_cast<double>(kRounds) * kChains * 64 * 2;
}

#endif

double rate_of(int threads, double (*loop)()) {
    double operations = 0;
    const double seconds = seconds_together(threads, [&](int thread) {
        const double done = loop();
        if (thread == 0) operations = done;
    });
    return operations * threads / seconds / 1e9;
}

typedef std::uint64_t Words __attribute__((vector_size(64)));

void read_all(const std::byte* from) {
    Words sums[4] = {};
    for (std::size_t at = 0; at < kBytes; at += sizeof sums) {
        for (std::size_t line = 0; line < sizeof sums; line += 64) __builtin_prefetch(from + at + line + kAhead);
        Words words[4];
        std::memcpy(words, from + at, sizeof words);
        for (int i = 0; i < 4; ++i) sums[i] ^= words[i];
    }
    const Words all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
    keep(all[0] ^ all[7]);
}

}  // namespace

Limits measure_limits(int threads) {
    Limits limits;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        limits.fma_gflops = rate_of(threads, multiply_add_512);
    } else if (__builtin_cpu_supports("fma")) {
        limits.fma_gflops = rate_of(threads, multiply_add_256);
    }
    if (__builtin_cpu_supports("avx512bf16")) limits.bf16_dot_gops = rate_of(threads, bf16_dot);
    if (__builtin_cpu_supports("avx512vnni")) limits.int8_dot_gops = rate_of(threads, int8_dot);
#endif
    const std::size_t total = kBytes * static_cast<std::size_t>(threads);
    // In huge pages, as weights lie; with room behind for what is asked for ahead.
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const auto release = [](std::byte* from) { std::free(from); };
    const std::unique_ptr<std::byte, decltype(release)> memory(
        static_cast<std::byte*>(std::aligned_alloc(kHugePage, total + kHugePage)), release);
    (void)::madvise(memory.get(), total + kHugePage, MADV_HUGEPAGE);
    std::memset(memory.get(), 1, total + kHugePage);
    const auto part = [&](int thread) { return memory.get() + static_cast<std::size_t>(thread) * kBytes; };
    limits.read_gb_per_s =
        static_cast<double>(total) / 1e9 / seconds_together(threads, [&](int t) { read_all(part(t)); });
    constexpr std::size_t kHalf = kBytes / 2;
    limits.copy_gb_per_s = static_cast<double>(kHalf) * threads / 1e9 /
                           seconds_together(threads, [&](int t) { std::memcpy(part(t) + kHalf, part(t), kHalf); });
    return limits;
}

double least_seconds(double operations, double gops, double bytes, double read_gb_per_s) {
    const double reading = bytes / (read_gb_per_s * 1e9);
    return gops > 0 ? std::max(operations / (gops * 1e9), reading) : reading;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace attune::bench
