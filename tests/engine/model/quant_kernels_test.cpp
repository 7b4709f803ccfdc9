#include "engine/kernels/quant_kernels.hpp"

#include "engine/files/half.hpp"
#include "engine/model/kernel_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::quant_kernel_sets;
using attune::testing::Values;

namespace {

constexpr Quant kAll[] = {Quant::int8, Quant::int4, Quant::int4_min};

struct PackedWeight {
    std::vector<std::uint8_t> panels;
    std::vector<double> values;  // [outputs, columns], what the bytes stand for
};

/// Codes and scales at random, with the largest and smallest codes side by side in the first columns.
PackedWeight random_weight(Quant quant, int outputs, int groups, Values& random) {
    const std::size_t bytes = group_bytes(quant);
    const int columns = groups * kQuantGroup;
    PackedWeight weight;
    weight.panels.resize(static_cast<std::size_t>(outputs / kPanelOutputs * groups) * bytes);
    weight.values.resize(static_cast<std::size_t>(outputs * columns));
    for (int n = 0; n < outputs; ++n) {
        for (int g = 0; g < groups; ++g) {
            std::uint8_t* group =
                weight.panels.data() + static_cast<std::size_t>(n / kPanelOutputs * groups + g) * bytes;
            const int within = n % kPanelOutputs;
            const std::uint16_t scale = float_to_half(0.01F * (random.next() + (n % 7 == 3 ? 0.0F : 1.5F)));
            const std::uint16_t minimum = float_to_half(0.1F * random.next());
            std::memcpy(group + 2 * within, &scale, sizeof scale);
            if (quant == Quant::int4_min) std::memcpy(group + 2 * (kPanelOutputs + within), &minimum, sizeof minimum);
            std::uint8_t* codes = group + group_scale_bytes(quant);
            for (int k = 0; k < kQuantGroup; ++k) {
                const std::uint32_t top = (1U << code_bits(quant)) - 1;
                const std::uint32_t code = n % 5 == 0 ? top : n % 5 == 1 ? 0 : random.bits() & top;
                if (quant == Quant::int8) {
                    codes[k / 4 * 128 + within * 4 + k % 4] = static_cast<std::uint8_t>(code);
                } else {
                    codes[k / 4 * 64 + within % 16 * 4 + k % 4] |=
                        static_cast<std::uint8_t>(within < 16 ? code : code << 4);
                }
                const double value =
                    static_cast<double>(half_to_float(scale)) * (static_cast<int>(code) - zero_code(quant)) +
                    (quant == Quant::int4_min ? static_cast<double>(half_to_float(minimum)) : 0.0);
                weight.values[static_cast<std::size_t>(n * columns + g * kQuantGroup + k)] = value;
            }
        }
    }
    return weight;
}

struct Activations {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;

    Activations(const QuantKernels& set, const std::vector<float>& x, int rows, int groups)
        : codes(static_cast<std::size_t>(rows * groups * kQuantGroup), 99),
          scales(static_cast<std::size_t>(rows * groups), -1.0F),
          sums(scales.size(), 12345) {
        QuantRowsCall call;
        call.x = x.data();
        call.x_stride = static_cast<std::ptrdiff_t>(groups) * kQuantGroup;
        call.groups = groups;
        call.codes = codes.data();
        call.scales = scales.data();
        call.sums = sums.data();
        set.quantise_rows(call, 0, rows);
    }
    /// Row `row` as it is multiplied.
    double value(int row, int column, int groups) const {
        const auto at = static_cast<std::size_t>(row * groups * kQuantGroup + column);
        return static_cast<double>(scales[at / kQuantGroup]) * codes[at];
    }
};

/// Rows [first, first + rows) of the activations, panels [from, to).
std::vector<float> product(const QuantKernels& set, Quant quant, const Activations& x, const PackedWeight& weight,
                           int first, int rows, int groups, int panels, int from, int to) {
    std::vector<float> y(static_cast<std::size_t>(rows * panels * kPanelOutputs), NAN);
    QuantGemmCall call;
    call.codes = x.codes.data() + first * groups * kQuantGroup;
    call.scales = x.scales.data() + first * groups;
    call.sums = x.sums.data() + first * groups;
    call.y = y.data();
    call.y_stride = panels * kPanelOutputs;
    call.rows = rows;
    call.groups = groups;
    call.panels = weight.panels.data();
    set.gemm(quant)(call, from, to);
    return y;
}

std::vector<float> random_rows(int rows, int groups, Values& random) {
    std::vector<float> x(static_cast<std::size_t>(rows * groups * kQuantGroup));
    for (float& value : x) value = random.next();
    return x;
}

}  // namespace

TEST_CASE("each instruction set multiplies quantised weights as arithmetic says, all with the same bits",
          "[engine][kernels][quant]") {
    constexpr int kOutputs = 64;
    for (const Quant quant : kAll) {
        for (const int groups : {1, 2, 5}) {
            Values random(static_cast<std::uint32_t>(groups) + 7);
            const PackedWeight weight = random_weight(quant, kOutputs, groups, random);
            const int columns = groups * kQuantGroup;
            for (const int rows : {1, 2, 3, 5, 6, 7, 13, 31}) {
                std::vector<float> x = random_rows(rows, groups, random);
                // The largest codes of both signs all through a row: what saturating sums would spoil.
                std::fill_n(x.begin(), columns, rows % 2 == 0 ? -1.0F : 1.0F);
                std::vector<float> of_first_set;
                for (const QuantKernels* set : quant_kernel_sets()) {
                    CAPTURE(set->name, code_bits(quant), groups, rows);
                    const Activations quantised(*set, x, rows, groups);
                    const auto y = product(*set, quant, quantised, weight, 0, rows, groups, 2, 0, 2);
                    double worst = 0;
                    for (int r = 0; r < rows; ++r) {
                        for (int n = 0; n < kOutputs; ++n) {
                            double sum = 0;
                            double size = 1e-3;
                            for (int k = 0; k < columns; ++k) {
                                const double one = quantised.value(r, k, groups) *
                                                   weight.values[static_cast<std::size_t>(n * columns + k)];
                                sum += one;
                                size += std::fabs(one);
                            }
                            const float got = y[static_cast<std::size_t>(r * kOutputs + n)];
                            const double off = std::fabs(static_cast<double>(got) - sum) / size;
                            worst = std::isnan(got) ? INFINITY : std::max(worst, off);
                        }
                    }
                    CHECK(worst < 1e-6);
                    if (of_first_set.empty()) of_first_set = y;
                    CHECK(std::memcmp(y.data(), of_first_set.data(), y.size() * sizeof(float)) == 0);
                }
            }
        }
    }
}

TEST_CASE("a quantised product's row has the same bits whatever rows and panels are made beside it",
          "[engine][kernels][quant]") {
    constexpr int kRows = 900;  // more than one chunk of resident rows
    constexpr int kGroups = 18;
    constexpr int kPanels = 3;
    Values random(5);
    const std::vector<float> x = random_rows(kRows, kGroups, random);
    for (const Quant quant : kAll) {
        const PackedWeight weight = random_weight(quant, kPanels * kPanelOutputs, kGroups, random);
        for (const QuantKernels* set : quant_kernel_sets()) {
            CAPTURE(set->name, code_bits(quant));
            // The slow set once, where only few rows matter.
            const int rows = std::string(set->name) == "baseline" ? 64 : kRows;
            const Activations all(*set, x, rows, kGroups);
            const auto many = product(*set, quant, all, weight, 0, rows, kGroups, kPanels, 0, kPanels);
            const std::size_t width = kPanels * kPanelOutputs;
            for (const int row : {0, 1, 13, rows - 1}) {
                const std::vector<float> alone(
                    x.begin() + static_cast<std::ptrdiff_t>(row) * kGroups * kQuantGroup,
                    x.begin() + static_cast<std::ptrdiff_t>(row + 1) * kGroups * kQuantGroup);
                const Activations one(*set, alone, 1, kGroups);
                auto y = product(*set, quant, one, weight, 0, 1, kGroups, kPanels, 0, 1);
                const auto rest = product(*set, quant, one, weight, 0, 1, kGroups, kPanels, 1, kPanels);
                std::copy(rest.begin() + kPanelOutputs, rest.end(), y.begin() + kPanelOutputs);
                CHECK(std::memcmp(y.data(), many.data() + static_cast<std::size_t>(row) * width,
                                  width * sizeof(float)) == 0);
            }
            for (int rows_beside = 2; rows_beside <= 64; ++rows_beside) {
                const auto some = product(*set, quant, all, weight, 0, rows_beside, kGroups, kPanels, 0, kPanels);
                CHECK(std::memcmp(some.data(), many.data(), some.size() * sizeof(float)) == 0);
            }
        }
    }
}

TEST_CASE("activations are rounded to the nearest of 127 steps of their group's largest", "[engine][kernels][quant]") {
    Values random(3);
    std::vector<float> x = random_rows(2, 3, random);
    x[40] = 12.7F;                                    // one large value makes its own group coarse, not the others
    std::fill(x.begin() + 64, x.begin() + 96, 0.0F);  // zeros
    std::fill(x.begin() + 96, x.begin() + 128, 1e-38F);
    x[130] = -3.0F;
    for (const QuantKernels* set : quant_kernel_sets()) {
        CAPTURE(set->name);
        const Activations rows(*set, x, 2, 3);
        for (int g = 0; g < 6; ++g) {
            float peak = 0;
            int sum = 0;
            for (int k = 0; k < kQuantGroup; ++k) {
                const auto at = static_cast<std::size_t>(g * kQuantGroup + k);
                peak = std::max(peak, std::fabs(x[at]));
                sum += rows.codes[at];
            }
            const auto group = static_cast<std::size_t>(g);
            CHECK(rows.sums[group] == sum);
            const float scale = peak < 1e-30F ? 0.0F : peak / 127.0F;
            CHECK(rows.scales[group] == scale);
            for (int k = 0; k < kQuantGroup; ++k) {
                const auto at = static_cast<std::size_t>(g * kQuantGroup + k);
                const double wanted = scale == 0.0F ? 0.0 : static_cast<double>(x[at]) / scale;
                CHECK(std::fabs(rows.codes[at] - wanted) <= 0.5 + 1e-4);
            }
        }
    }
}

TEST_CASE("a value that is not finite shows in all outputs of its row and in no other", "[engine][kernels][quant]") {
    constexpr int kGroups = 4;
    Values random(8);
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> x = random_rows(3, kGroups, random);
        x[kGroups * kQuantGroup + 37] = bad;
        for (const Quant quant : kAll) {
            const PackedWeight weight = random_weight(quant, kPanelOutputs, kGroups, random);
            for (const QuantKernels* set : quant_kernel_sets()) {
                CAPTURE(set->name, code_bits(quant), bad);
                const Activations rows(*set, x, 3, kGroups);
                const auto y = product(*set, quant, rows, weight, 0, 3, kGroups, 1, 0, 1);
                for (int n = 0; n < 3 * kPanelOutputs; ++n)
                    CHECK(std::isfinite(y[static_cast<std::size_t>(n)]) == (n / kPanelOutputs != 1));
            }
        }
    }
}

TEST_CASE("float16 scales round to the nearest even, subnormals too", "[engine][kernels][quant]") {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = half_to_float(half);
        if (std::isnan(value)) {
            CHECK(std::isnan(half_to_float(float_to_half(value))));
        } else if (float_to_half(value) != half) {
            FAIL_CHECK("half " << bits << " came back as " << float_to_half(value));
        }
    }
    CHECK(float_to_half(1.0F + 0x1p-11F) == 0x3C00);      // halfway: even is 1
    CHECK(float_to_half(1.0F + 3 * 0x1p-11F) == 0x3C02);  // halfway: even is above
    CHECK(float_to_half(0x1p-25F) == 0);                  // halfway to the smallest subnormal
    CHECK(float_to_half(0x1.8p-24F) == 2);
    CHECK(float_to_half(65519.0F) == 0x7BFF);
    CHECK(float_to_half(-65520.0F) == 0xFC00);
}
