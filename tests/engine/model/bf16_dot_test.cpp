// Products of bfloat16 activations and bfloat16 weights, where the processor has the instructions.

#include "engine/kernels/bf16_dot.hpp"

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/instruction_set.hpp"
#include "engine/model/kernel_values.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::Values;

namespace {

constexpr int kPanels = 3;
constexpr int kOutputs = kPanels * kPanelOutputs;

struct Product {
    int columns;
    std::vector<float> x;       // [rows, columns]
    std::vector<Bf16> rounded;  // [rows, bf16_row_elements(columns)]
    std::vector<Bf16> panels;

    Product(int rows, int columns_of_x) : columns(columns_of_x) {
        Values random(static_cast<std::uint32_t>(columns) * 31 + 5);
        for (int i = 0; i < rows * columns; ++i) x.push_back(random.next());
        for (int i = 0; i < kOutputs * columns; ++i) panels.push_back(to_bf16(random.next()));
        // What nobody wrote shows as NaN in the sums.
        rounded.assign(static_cast<std::size_t>(rows * bf16_row_elements(columns)), Bf16{0x7fff});
        Bf16RowsCall call;
        call.x = x.data();
        call.x_stride = columns;
        call.columns = columns;
        call.rounded = rounded.data();
        bf16_dot_kernels()->round_rows(call, 0, rows);
    }

    /// Rows [first, first + rows), panels [from, to).
    std::vector<float> run(int first, int rows, int from = 0, int to = kPanels) const {
        std::vector<float> y(static_cast<std::size_t>(rows * kOutputs), NAN);
        Bf16DotCall call;
        call.x = rounded.data() + first * bf16_row_elements(columns);
        call.y = y.data();
        call.y_stride = kOutputs;
        call.rows = rows;
        call.columns = columns;
        call.panels = panels.data();
        bf16_dot_kernels()->gemm(call, from, to);
        return y;
    }

    float weight(int output, int column) const {
        const int panel = output / kPanelOutputs;
        return from_bf16(panels[static_cast<std::size_t>((panel * columns + column) * kPanelOutputs +
                                                         panel_index(Bf16{}, output % kPanelOutputs))]);
    }
};

bool same_bits(const float* a, const float* b, std::size_t count) {
    return std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("bfloat16 by bfloat16 is what arithmetic says, for odd numbers of columns too", "[engine][kernels][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    for (const int columns : {1, 2, 7, 16, 33, 96, 577}) {
        for (const int rows : {1, 2, 13, 14, 15, 31}) {
            CAPTURE(columns, rows);
            const Product product(rows, columns);
            const std::vector<float> y = product.run(0, rows);
            double worst = 0;
            for (int row = 0; row < rows; ++row) {
                for (int output = 0; output < kOutputs; ++output) {
                    double sum = 0;
                    for (int k = 0; k < columns; ++k)
                        sum += static_cast<double>(
                                   from_bf16(to_bf16(product.x[static_cast<std::size_t>(row * columns + k)]))) *
                               static_cast<double>(product.weight(output, k));
                    worst = std::max(worst, std::fabs(y[static_cast<std::size_t>(row * kOutputs + output)] - sum));
                }
            }
            // float32 sums of so many products below one.
            CHECK(worst < 1e-7 * columns + 1e-7);
        }
    }
}

TEST_CASE("a bfloat16 product's row has the same bits whatever rows and panels are made beside it",
          "[engine][kernels][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    constexpr int kRows = 700;  // more than stay in the cache together
    const Product product(kRows, 576);
    const std::vector<float> all = product.run(0, kRows);
    for (const int rows : {1, 2, 3, 7, 14, 15, 29, 64}) {
        CAPTURE(rows);
        for (const int first : {0, 5, kRows - rows}) {
            const std::vector<float> own = product.run(first, rows);
            CHECK(same_bits(own.data(), all.data() + first * kOutputs, own.size()));
        }
    }
    const std::vector<float> middle = product.run(40, 1, 1, 2);
    CHECK(same_bits(middle.data() + kPanelOutputs, all.data() + 40 * kOutputs + kPanelOutputs, kPanelOutputs));
    CHECK(std::isnan(middle[0]));
    CHECK(std::isnan(middle[2 * kPanelOutputs]));
}

TEST_CASE("activations are rounded to the nearest bfloat16, and what is not finite stays so",
          "[engine][kernels][bf16]") {
    if (bf16_dot_kernels() == nullptr) return;
    Product product(1, 40);
    const float kInfinity = std::numeric_limits<float>::infinity();
    const float special[] = {0.0F, -0.0F, 1.00390625F, 1.01171875F, -3.4e38F, 1e-40F, kInfinity, -kInfinity, NAN};
    std::copy(std::begin(special), std::end(special), product.x.begin());
    Bf16RowsCall call;
    call.x = product.x.data();
    call.x_stride = 40;
    call.columns = 40;
    call.rounded = product.rounded.data();
    bf16_dot_kernels()->round_rows(call, 0, 1);
    for (std::size_t i = 0; i < product.x.size(); ++i) {
        const float value = product.x[i];
        CAPTURE(i, value);
        const Bf16 got = product.rounded[i];
        if (std::isnan(value)) {
            CHECK(std::isnan(from_bf16(got)));
        } else {
            // A subnormal is nothing.
            CHECK(got.bits == to_bf16(std::fabs(value) < 1.2e-38F ? std::copysign(0.0F, value) : value).bits);
        }
    }
    const std::vector<float> y = product.run(0, 1);
    for (const float value : y) CHECK(std::isnan(value));
}

TEST_CASE("a bound on the instruction set takes bfloat16 products away", "[engine][kernels][bf16]") {
    limit_instruction_set(InstructionSet::v4);
    CHECK(bf16_dot_kernels() == nullptr);
    limit_instruction_set(InstructionSet::best);
    if (machine_runs(InstructionSet::v4) && bf16_dot_kernels() != nullptr)
        CHECK(std::strcmp(bf16_dot_kernels()->name, "avx512-bf16") == 0);
}
