// Attention over the paged cache in each instruction set.

#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kv/block_size.hpp"
#include "engine/model/kernel_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::kernel_sets;
using attune::testing::Values;

namespace {

/// One form of attention: what writes the cache, what reads it, and how far it may be from the exact sums over what the
/// cache holds.
struct Attention {
    std::string name;
    bool bf16_cache;
    bool bf16_queries;
    void (*write)(const KvWriteCall&, std::int64_t, std::int64_t);
    void (*attend)(const AttentionCall&, std::int64_t, std::int64_t, float*);
    double tolerance;
};

std::vector<Attention> attentions() {
    std::vector<Attention> out;
    for (const CpuKernels* set : kernel_sets()) {
        const std::string name = set->name;
        out.push_back({name + ", f32", false, false, set->kv_write_f32, set->attend_f32, 2e-6});
        out.push_back({name + ", bf16", true, false, set->kv_write_bf16, set->attend_bf16, 2e-6});
    }
    // Weights of up to one in eight bits, times values of up to one.
    if (const Bf16DotKernels* dots = bf16_dot_kernels())
        out.push_back({dots->name, true, true, cpu_kernels().kv_write_bf16, dots->attend, 4e-3});
    return out;
}

std::vector<float> rounded(std::vector<float> values, bool to_bf16_too) {
    if (to_bf16_too)
        for (float& value : values) value = from_bf16(to_bf16(value));
    return values;
}

}  // namespace

TEST_CASE("attention over blocks is the softmax sum, with windows, shared heads and odd head sizes",
          "[engine][kernels][kv]") {
    constexpr int kBlocks = 4;
    const int head_dim = GENERATE(16, 20, 64);
    const int group = GENERATE(1, 2, 3, 4, 5);
    const int window = GENERATE(0, 7, 16);
    CAPTURE(head_dim, group, window);
    const int kv_heads = 2;
    const int heads = kv_heads * group;
    const int value_dim = (head_dim + 15) / 16 * 16;
    const int context = 45;
    Values values(9);
    const auto k = values.many(static_cast<std::size_t>(context * kv_heads * head_dim));
    const auto v = values.many(static_cast<std::size_t>(context * kv_heads * head_dim));
    const auto q = values.many(static_cast<std::size_t>(context * heads * head_dim));
    std::vector<std::int32_t> positions;
    for (int p = 0; p < context; ++p) positions.push_back(p);
    const std::vector<std::int32_t> first_block(static_cast<std::size_t>(context), 1);
    const std::vector<std::int32_t> table{-1, 2, 0, 3};

    for (const Attention& form : attentions()) {
        CAPTURE(form.name);
        // Bytes of 255 are NaN in either type: what nobody wrote must not be seen.
        std::vector<float> keys(static_cast<std::size_t>(kBlocks * kv_heads * head_dim * kBlockTokens));
        std::vector<float> cached(static_cast<std::size_t>(kBlocks * kv_heads * value_dim * kBlockTokens));
        const auto forget = [&] {
            std::memset(keys.data(), 255, keys.size() * sizeof(float));
            std::memset(cached.data(), 255, cached.size() * sizeof(float));
        };
        forget();
        KvWriteCall write;
        write.k = k.data();
        write.v = v.data();
        write.k_stride = write.v_stride = kv_heads * head_dim;
        write.kv_heads = kv_heads;
        write.head_dim = head_dim;
        write.value_dim = value_dim;
        write.keys = keys.data();
        write.values = cached.data();
        write.positions = positions.data();
        write.first_block = first_block.data();
        write.blocks = table.data();
        form.write(write, 0, context);

        std::vector<float> out(q.size(), NAN);
        AttentionCall call;
        call.q = q.data();
        call.q_stride = call.out_stride = heads * head_dim;
        call.out = out.data();
        call.heads = heads;
        call.kv_heads = kv_heads;
        call.head_dim = head_dim;
        call.value_dim = value_dim;
        call.scale = 0.25F;
        call.window = window;
        call.keys = keys.data();
        call.values = cached.data();
        call.positions = positions.data();
        call.first_block = first_block.data();
        call.blocks = table.data();
        std::vector<float> scratch(attention_scratch(context - 1, head_dim));
        form.attend(call, 0, static_cast<std::int64_t>(context) * kv_heads, scratch.data());

        // A row alone, before those after it were written, gives the bits it has among them.
        std::vector<float> alone(q.size(), NAN);
        AttentionCall single = call;
        single.out = alone.data();
        forget();
        for (int row = 0; row < context; ++row) {
            form.write(write, row, row + 1);
            for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
                const std::int64_t item = static_cast<std::int64_t>(row) * kv_heads + kv_head;
                form.attend(single, item, item + 1, scratch.data());
            }
        }
        CHECK(std::memcmp(alone.data(), out.data(), out.size() * sizeof(float)) == 0);

        const std::vector<float> queries = rounded(q, form.bf16_queries);
        const std::vector<float> held_keys = rounded(k, form.bf16_cache);
        const std::vector<float> held_values = rounded(v, form.bf16_cache);
        double worst = 0;
        for (int row = 0; row < context; ++row) {
            for (int head = 0; head < heads; ++head) {
                const int kv_head = head / group;
                const int from = window > 0 ? std::max(0, row - window + 1) : 0;
                std::vector<double> weights;
                double sum = 0;
                for (int p = from; p <= row; ++p) {
                    double score = 0;
                    for (int d = 0; d < head_dim; ++d)
                        score += static_cast<double>(
                                     queries[static_cast<std::size_t>((row * heads + head) * head_dim + d)]) *
                                 held_keys[static_cast<std::size_t>((p * kv_heads + kv_head) * head_dim + d)];
                    weights.push_back(std::exp(score * 0.25));
                    sum += weights.back();
                }
                for (int d = 0; d < head_dim; ++d) {
                    double expected = 0;
                    for (int p = from; p <= row; ++p)
                        expected += weights[static_cast<std::size_t>(p - from)] / sum *
                                    held_values[static_cast<std::size_t>((p * kv_heads + kv_head) * head_dim + d)];
                    const float got = out[static_cast<std::size_t>((row * heads + head) * head_dim + d)];
                    worst = std::isnan(got) ? INFINITY : std::max(worst, std::fabs(got - expected));
                }
            }
        }
        CHECK(worst < form.tolerance);
        if (form.bf16_queries) CHECK(worst > 2e-6);
    }
}
