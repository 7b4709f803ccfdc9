#include "engine/kernels/cpu_kernels.hpp"

#include "engine/model/kernel_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::kernel_sets;
using attune::testing::Values;

namespace {

/// w: [outputs, columns] into panels.
template <class Element>
std::vector<Element> pack(const std::vector<float>& w, int outputs, int columns) {
    std::vector<Element> panels(w.size());
    for (int n = 0; n < outputs; ++n) {
        for (int k = 0; k < columns; ++k) {
            const float value = w[static_cast<std::size_t>(n * columns + k)];
            Element element;
            if constexpr (std::is_same_v<Element, Bf16>) {
                element = to_bf16(value);
            } else {
                element = value;
            }
            const int index = panel_index(Element{}, n % kPanelOutputs);
            const int panel = n / kPanelOutputs;
            panels[static_cast<std::size_t>((panel * columns + k) * kPanelOutputs + index)] = element;
        }
    }
    return panels;
}

}  // namespace

TEST_CASE("each instruction set multiplies as arithmetic says, for any number of rows", "[engine][kernels]") {
    constexpr int kOutputs = 64;
    constexpr int kColumns = 37;
    for (const CpuKernels* set : kernel_sets()) {
        CAPTURE(set->name);
        for (int rows = 1; rows <= 31; ++rows) {
            CAPTURE(rows);
            Values values(static_cast<std::uint32_t>(rows));
            const auto x = values.many(static_cast<std::size_t>(rows * kColumns));
            auto w = values.many(kOutputs * kColumns);
            for (float& value : w) value = from_bf16(to_bf16(value));  // so that both types hold the same weight
            const auto f32 = pack<float>(w, kOutputs, kColumns);
            const auto bf16 = pack<Bf16>(w, kOutputs, kColumns);
            std::vector<float> y(static_cast<std::size_t>(rows * kOutputs), NAN);
            std::vector<float> z = y;
            GemmCall call{x.data(), kColumns, y.data(), kOutputs, rows, kColumns, f32.data()};
            set->gemm_f32(call, 0, 2);
            call.y = z.data();
            call.panels = bf16.data();
            set->gemm_bf16(call, 0, 1);
            set->gemm_bf16(call, 1, 2);
            float worst = 0;
            for (int r = 0; r < rows; ++r) {
                for (int n = 0; n < kOutputs; ++n) {
                    double sum = 0;
                    for (int k = 0; k < kColumns; ++k)
                        sum += static_cast<double>(x[static_cast<std::size_t>(r * kColumns + k)]) *
                               w[static_cast<std::size_t>(n * kColumns + k)];
                    const float got = y[static_cast<std::size_t>(r * kOutputs + n)];
                    worst = std::max(worst, std::fabs(got - static_cast<float>(sum)));
                }
            }
            CHECK(worst < 1e-5F);
            CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("a product's row has the same bits whatever rows stand beside it", "[engine][kernels]") {
    constexpr int kColumns = 576;
    Values values(5);
    const auto x = values.many(512 * kColumns);
    const auto panel = values.many(kColumns * kPanelOutputs);
    for (const CpuKernels* set : kernel_sets()) {
        CAPTURE(set->name);
        std::vector<float> many(512 * kPanelOutputs);
        set->gemm_f32({x.data(), kColumns, many.data(), kPanelOutputs, 512, kColumns, panel.data()}, 0, 1);
        for (const int row : {0, 1, 13, 255, 500, 511}) {
            std::vector<float> one(kPanelOutputs);
            set->gemm_f32({x.data() + row * kColumns, kColumns, one.data(), kPanelOutputs, 1, kColumns, panel.data()},
                          0, 1);
            CHECK(std::memcmp(one.data(), many.data() + row * kPanelOutputs, sizeof(float) * kPanelOutputs) == 0);
        }
    }
}

TEST_CASE("rows' small mathematics: norm with its addition, rotation, silu", "[engine][kernels]") {
    const int n = GENERATE(8, 16, 20, 64);
    CAPTURE(n);
    const auto size = static_cast<std::size_t>(n);
    Values values(3);
    const auto x = values.many(size);
    const auto delta = values.many(size);
    const auto weight = values.many(size);
    for (const CpuKernels* set : kernel_sets()) {
        CAPTURE(set->name);
        std::vector<float> sum = x;
        std::vector<float> out(size);
        set->rms_norm(sum.data(), delta.data(), weight.data(), 1e-5F, n, out.data());
        double squares = 0;
        for (std::size_t i = 0; i < size; ++i) {
            CHECK(sum[i] == x[i] + delta[i]);
            squares += static_cast<double>(sum[i]) * sum[i];
        }
        const double scale = 1.0 / std::sqrt(squares / n + 1e-5);
        for (std::size_t i = 0; i < size; ++i) CHECK(out[i] == Approx(sum[i] * scale * weight[i]).margin(1e-6));

        set->silu_mul(x.data(), delta.data(), n, out.data());
        for (std::size_t i = 0; i < size; ++i)
            CHECK(out[i] == Approx(x[i] / (1 + std::exp(-x[i])) * delta[i]).margin(1e-6));

        std::vector<float> head = x;
        const int half = n / 2;
        set->rope(head.data(), delta.data(), weight.data(), half);
        for (int i = 0; i < half; ++i) {
            const auto a = static_cast<std::size_t>(i);
            const auto b = static_cast<std::size_t>(i + half);
            CHECK(head[a] == Approx(x[a] * delta[a] - x[b] * weight[a]).margin(1e-6));
            CHECK(head[b] == Approx(x[b] * delta[a] + x[a] * weight[a]).margin(1e-6));
        }
    }
}

TEST_CASE("silu of large and small gates stays finite and right", "[engine][kernels]") {
    std::vector<float> gate{-200, -90, -30, -1, 0, 1, 30, 90, 200, 1e-30F, -1e-30F, 3.5F, -3.5F, 10, -10, 0.5F};
    const std::vector<float> up(16, 2.0F);
    for (const CpuKernels* set : kernel_sets()) {
        std::vector<float> out(16);
        set->silu_mul(gate.data(), up.data(), 16, out.data());
        for (std::size_t i = 0; i < 16; ++i) {
            const double expected = 2.0 * gate[i] / (1 + std::exp(-static_cast<double>(gate[i])));
            CHECK(out[i] == Approx(expected).margin(1e-6));
        }
    }
}

TEST_CASE("bfloat16 rows turned into panels keep every bit, whatever is missing at the edges", "[engine][kernels]") {
    for (const CpuKernels* set : kernel_sets()) {
        for (const int columns : {1, 15, 16, 48, 53}) {
            for (const int count : {1, 16, 17, 31, 32}) {
                CAPTURE(set->name, columns, count);
                std::vector<std::uint16_t> rows(static_cast<std::size_t>(count * columns));
                // Every pattern is kept, those of NaN and infinity too.
                for (std::size_t i = 0; i < rows.size(); ++i)
                    rows[i] = static_cast<std::uint16_t>(i * 40503U + 0x7f81U);
                std::vector<Bf16> panel(static_cast<std::size_t>(kPanelOutputs * columns), Bf16{0xdead});
                set->pack_bf16(rows.data(), count, columns, panel.data());
                int wrong = 0;
                for (int n = 0; n < kPanelOutputs; ++n) {
                    for (int k = 0; k < columns; ++k) {
                        const std::uint16_t expected =
                            n < count ? rows[static_cast<std::size_t>(n * columns + k)] : std::uint16_t{0};
                        const int at = k * kPanelOutputs + panel_index(Bf16{}, n);
                        wrong += panel[static_cast<std::size_t>(at)].bits != expected;
                    }
                }
                CHECK(wrong == 0);
            }
        }
    }
}

TEST_CASE("bfloat16 rounds to the nearest even and keeps NaN", "[engine][kernels]") {
    CHECK(from_bf16(to_bf16(1.0F)) == 1.0F);
    CHECK(to_bf16(1.00390625F).bits == 0x3f80);  // halfway between 1 and the next: even is 1
    CHECK(to_bf16(1.01171875F).bits == 0x3f82);  // halfway: even is the one above
    CHECK(to_bf16(-0.0F).bits == 0x8000);
    CHECK(std::isinf(from_bf16(to_bf16(3.4e38F))));
    CHECK(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    std::uint32_t word = 0x7f800001;  // a NaN whose set bits all lie in the lower half
    float quiet_only_below = 0;
    std::memcpy(&quiet_only_below, &word, sizeof word);
    CHECK(std::isnan(from_bf16(to_bf16(quiet_only_below))));
}

TEST_CASE("a panel is changed in place in every set as in float64, rounded once", "[engine][kernels][merge]") {
    constexpr int kColumns = 39;  // no multiple of any block
    constexpr int kRank = 5;
    constexpr int kShards = 7;
    Values values(11);
    const auto w = values.many(kPanelOutputs * kColumns);  // [outputs, columns]
    const auto a = values.many(kRank * kColumns);
    const auto b = values.many(kRank * kPanelOutputs);
    const auto shards = values.many(kShards * kPanelOutputs);
    const auto rows = values.many(kPanelOutputs);
    const auto columns = values.many(kColumns);
    const auto check = [&](auto element, auto member, double tolerance) {
        using Element = decltype(element);
        for (const CpuKernels* set : kernel_sets()) {
            INFO(set->name);
            std::vector<Element> panel = pack<Element>(w, kPanelOutputs, kColumns);
            const std::vector<Element> before = panel;
            const ChangeCall::Shards one{shards.data(), kShards};
            ChangeCall call;
            call.panel = panel.data();
            call.columns = kColumns;
            call.rank = kRank;
            call.a = a.data();
            call.b = b.data();
            call.row_gain = rows.data();
            call.column_gain = columns.data();
            call.shards = &one;
            call.shard_count = 1;
            REQUIRE((set->*member)(call));
            const auto wide = [](Element value) {
                if constexpr (std::is_same_v<Element, Bf16>) {
                    return static_cast<double>(from_bf16(value));
                } else {
                    return static_cast<double>(value);
                }
            };
            double worst = 0;
            for (int c = 0; c < kColumns; ++c) {
                for (int n = 0; n < kPanelOutputs; ++n) {
                    const auto at = static_cast<std::size_t>(c * kPanelOutputs + panel_index(Element{}, n));
                    const auto i = [](int index) { return static_cast<std::size_t>(index); };
                    double expected =
                        wide(before[at]) * (1.0 + static_cast<double>(rows[i(n)]) + static_cast<double>(columns[i(c)]));
                    for (int k = 0; k < kRank; ++k)
                        expected += static_cast<double>(b[i(k * kPanelOutputs + n)]) *
                                    static_cast<double>(a[i(k * kColumns + c)]);
                    expected += static_cast<double>(shards[i(c % kShards * kPanelOutputs + n)]);
                    worst = std::max(worst, std::fabs(wide(panel[at]) - expected) / (1 + std::fabs(expected)));
                }
            }
            CHECK(worst < tolerance);

            // Not finite, or not any more once it is rounded.
            for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                                    -std::numeric_limits<float>::quiet_NaN()}) {
                auto wrong = b;
                wrong.back() = bad;
                call.b = wrong.data();
                CHECK_FALSE((set->*member)(call));
                panel = before;
            }
            call.b = b.data();
            call.rank = 0;
            call.shard_count = 0;
            std::vector<float> large(kPanelOutputs, 0.0F);
            large[20] = 3.3e38F;
            call.row_gain = large.data();
            call.column_gain = nullptr;
            CHECK((set->*member)(call));
            CHECK_FALSE((set->*member)(call));  // larger still
        }
    };
    check(float{}, &CpuKernels::change_f32, 1e-6);
    check(Bf16{}, &CpuKernels::change_bf16, 0.004);
}
