#include "engine/kernels/lora.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace attune {
namespace {

// One projection with its inputs; A and B as a module has them.
struct Problem {
    int rows, in, out, rank;
    std::vector<float> x, y, a, b;

    Problem(int rows_, int in_, int out_, int rank_, unsigned seed = 1) : rows(rows_), in(in_), out(out_), rank(rank_) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (auto* values : {&x, &y, &a, &b}) {
            values->resize(static_cast<std::size_t>(values == &x   ? rows * in
                                                    : values == &y ? rows * out
                                                    : values == &a ? rank * in
                                                                   : out * rank));
            for (float& value : *values) value = normal(random);
        }
    }
    void round_to_bf16() {
        for (auto* values : {&a, &b})
            for (float& value : *values) {
                std::uint16_t half = 0;
                to_bf16_array(&value, 1, &half);
                value = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
            }
    }
    // Float64, in the order of the formula.
    std::vector<float> expected(const std::vector<std::int32_t>& chosen, const std::vector<float>& weights,
                                float scale) const {
        std::vector<float> out_values = y;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const auto row = static_cast<std::size_t>(chosen[i]);
            for (int o = 0; o < out; ++o) {
                double sum = 0;
                for (int j = 0; j < rank; ++j) {
                    double t = 0;
                    for (int k = 0; k < in; ++k)
                        t += static_cast<double>(x[row * static_cast<std::size_t>(in) + static_cast<std::size_t>(k)]) *
                             a[static_cast<std::size_t>(j * in + k)];
                    sum += t * b[static_cast<std::size_t>(o * rank + j)];
                }
                float& value = out_values[row * static_cast<std::size_t>(out) + static_cast<std::size_t>(o)];
                value = static_cast<float>(value + static_cast<double>(weights[i]) * scale * sum);
            }
        }
        return out_values;
    }
};

std::vector<float> run(const LoraKernels& kernels, const Problem& problem, const std::vector<std::int32_t>& rows,
                       const std::vector<float>& weights, float scale, bool bf16 = false, bool shards = false) {
    std::vector<float> y = problem.y;
    const std::size_t panel_elements = packed_b_elements(problem.out, problem.rank);
    std::vector<float> b(panel_elements);
    std::vector<std::uint16_t> a16(problem.a.size());
    std::vector<std::uint16_t> b16(panel_elements);
    pack_lora_b(problem.b.data(), problem.out, problem.rank, b.data());
    pack_lora_b(problem.b.data(), problem.out, problem.rank, b16.data());
    to_bf16_array(problem.a.data(), problem.a.size(), a16.data());
    LoraCall call;
    call.x = problem.x.data();
    call.x_stride = problem.in;
    call.y = y.data();
    call.y_stride = problem.out;
    call.rows = rows.data();
    call.weights = weights.data();
    call.count = static_cast<int>(rows.size());
    call.in = problem.in;
    call.out = problem.out;
    call.rank = problem.rank;
    call.scale = scale;
    call.a = bf16 ? static_cast<const void*>(a16.data()) : problem.a.data();
    if (shards) call.a = nullptr;
    call.b = bf16 ? static_cast<const void*>(b16.data()) : b.data();
    std::vector<float> scratch(rows.size() * static_cast<std::size_t>(problem.rank));
    (bf16 ? kernels.apply_bf16 : kernels.apply_f32)(call, scratch.data());
    return y;
}

std::vector<const LoraKernels*> sets() {
    std::vector<const LoraKernels*> found;
    for (const char* name : {"x86-64-v4", "x86-64-v3", "baseline"})
        if (const LoraKernels* set = lora_kernels(name)) found.push_back(set);
    REQUIRE_FALSE(found.empty());
    return found;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
    return largest;
}

TEST_CASE("every instruction set computes the formula for every rank and ragged width", "[engine][slots]") {
    for (const LoraKernels* kernels : sets())
        for (const int rank : {1, 3, 4, 5, 12, 20, 33})
            for (const auto& [in, out] : {std::pair{64, 32}, {23, 41}, {16, 5}, {7, 16}, {160, 64}}) {
                CAPTURE(kernels->name, rank, in, out);
                Problem problem(6, in, out, rank);
                const std::vector<std::int32_t> rows{0, 2, 3, 5};
                const std::vector<float> weights{1, 0.5F, -2, 0.25F};
                const float tolerance = 2e-6F * static_cast<float>(in * rank);
                CHECK(largest_difference(run(*kernels, problem, rows, weights, 0.7F),
                                         problem.expected(rows, weights, 0.7F)) < tolerance);
                problem.round_to_bf16();
                CHECK(largest_difference(run(*kernels, problem, rows, weights, 0.7F, true),
                                         problem.expected(rows, weights, 0.7F)) < tolerance);
            }
}

TEST_CASE("without A every set sums the shards of its inputs", "[engine][slots]") {
    for (const LoraKernels* kernels : sets())
        for (const bool bf16 : {false, true})
            for (const auto& [in, rank] : {std::pair{64, 8}, {23, 5}, {23, 16}, {40, 40}, {7, 16}, {160, 12}}) {
                CAPTURE(kernels->name, bf16, in, rank);
                Problem problem(6, in, 41, rank);
                std::fill(problem.a.begin(), problem.a.end(), 0.0F);
                for (int j = 0; j < in; ++j) problem.a[static_cast<std::size_t>(j % rank * in + j)] = 1;
                if (bf16) problem.round_to_bf16();
                const std::vector<std::int32_t> rows{0, 2, 3, 5};
                const std::vector<float> weights{1, 0.5F, -2, 0.25F};
                const auto y = run(*kernels, problem, rows, weights, 0.7F, bf16, true);
                CHECK(largest_difference(y, problem.expected(rows, weights, 0.7F)) <
                      2e-6F * static_cast<float>(in * rank));
            }
}

TEST_CASE("a row's bits do not depend on the rows beside it", "[engine][slots]") {
    for (const LoraKernels* kernels : sets())
        for (const bool bf16 : {false, true})
            for (const int rank : {1, 5, 16, 33}) {
                const Problem problem(21, 71, 53, rank);
                std::vector<std::int32_t> all(21);
                std::vector<float> weights(21);
                for (int i = 0; i < 21; ++i) {
                    all[static_cast<std::size_t>(i)] = i;
                    weights[static_cast<std::size_t>(i)] = 1.0F + 0.1F * static_cast<float>(i);
                }
                const auto together = run(*kernels, problem, all, weights, 0.3F, bf16);
                CAPTURE(kernels->name, bf16, rank);
                // Alone, and as the tail of every chunk length.
                for (int length : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15}) {
                    for (int first = 0; first + length <= 21; first += length) {
                        const std::vector<std::int32_t> some(all.begin() + first, all.begin() + first + length);
                        const std::vector<float> their(weights.begin() + first, weights.begin() + first + length);
                        const auto apart = run(*kernels, problem, some, their, 0.3F, bf16);
                        const auto begin = static_cast<std::size_t>(first * problem.out);
                        const auto bytes = static_cast<std::size_t>(length * problem.out) * sizeof(float);
                        if (std::memcmp(apart.data() + begin, together.data() + begin, bytes) != 0)
                            FAIL("rows " << first << " to " << first + length - 1 << " differ");
                    }
                }
            }
}

TEST_CASE("other rows keep their bits", "[engine][slots]") {
    const Problem problem(4, 33, 20, 3);
    for (const LoraKernels* kernels : sets()) {
        const auto y = run(*kernels, problem, {1, 3}, {1, 1}, 1.0F);
        for (const std::size_t row : {0U, 2U})
            CHECK(std::memcmp(y.data() + row * 20, problem.y.data() + row * 20, 20 * sizeof(float)) == 0);
        for (const std::size_t row : {1U, 3U})
            CHECK(std::memcmp(y.data() + row * 20, problem.y.data() + row * 20, 20 * sizeof(float)) != 0);
    }
}

TEST_CASE("panels hold B by sixteen outputs, padded with zeros", "[engine][slots]") {
    std::vector<float> b(18 * 2);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i + 1);
    CHECK(packed_b_elements(18, 2) == 64);
    std::vector<float> panels(64, -1);
    pack_lora_b(b.data(), 18, 2, panels.data());
    CHECK(panels[0] == 1);         // output 0, rank 0
    CHECK(panels[16] == 2);        // output 0, rank 1
    CHECK(panels[15] == 31);       // output 15, rank 0
    CHECK(panels[32] == 33);       // output 16, rank 0
    CHECK(panels[32 + 17] == 36);  // output 17, rank 1
    CHECK(panels[32 + 2] == 0);
    CHECK(panels[63] == 0);
}

TEST_CASE("bfloat16 rounds to the nearest even", "[engine][slots]") {
    const float values[] = {1.0F, 1.00390625F, 1.01171875F, -3.14159274F, 0.0F};
    std::uint16_t halves[5];
    to_bf16_array(values, 5, halves);
    CHECK(halves[0] == 0x3F80);
    CHECK(halves[1] == 0x3F80);  // halfway, down to even
    CHECK(halves[2] == 0x3F82);  // halfway, up to even
    CHECK(halves[3] == 0xC049);
    CHECK(halves[4] == 0);
}

}  // namespace
}  // namespace attune
