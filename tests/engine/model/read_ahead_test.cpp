#include "engine/kernels/read_ahead.hpp"

#include "engine/kernels/bf16_dot.hpp"
#include "engine/kernels/quant_kernels.hpp"
#include "engine/model/kernel_values.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace attune {
namespace {

#include "engine/kernels/panel_share.hpp"

struct alignas(kCacheLine) Lines {
    char bytes[64 * kCacheLine];  // as many as a test needs
    const char* line(std::int64_t index) const { return bytes + index * kCacheLine; }
};

/// The lines that a panel asks for, `most` at a time.
std::vector<const char*> taken(const LinesAhead& ahead, std::int64_t panel, std::int64_t most) {
    std::vector<const char*> lines;
    for (PanelShare share(ahead, panel); share.left() > 0;) {
        const char* first = nullptr;
        const int count = share.take(most, first);
        REQUIRE(count >= 1);
        REQUIRE(count <= most);
        for (int i = 0; i < count; ++i) lines.push_back(first + i * kCacheLine);
    }
    return lines;
}

TEST_CASE("what is read ahead is whole lines, joined where they lie together", "[engine][kernels]") {
    const Lines memory{};
    ReadAhead ahead;
    CHECK(ahead.over(3).lines == 0);
    ahead.add(nullptr, 100);
    ahead.add(memory.line(1), 0);
    CHECK(ahead.lines() == 0);
    ahead.add(memory.line(1), 2 * kCacheLine);
    ahead.add(memory.line(3), 1);
    ahead.add(memory.line(10) + 60, 8);  // touches two
    ahead.add(memory.line(5), kCacheLine);
    const LinesAhead view = ahead.over(3);
    CHECK(view.lines == 6);
    CHECK(view.panels == 3);
    REQUIRE(view.count == 3);
    CHECK(view.runs[0].first == memory.line(1));
    CHECK(view.runs[1].first == memory.line(10));
    CHECK(view.runs[1].before == 3);
    CHECK(view.runs[2].first == memory.line(5));
    CHECK(view.runs[2].before == 5);
    ahead.clear();
    CHECK(ahead.lines() == 0);
    CHECK(ahead.over(1).count == 0);
}

TEST_CASE("no more is read ahead than the limit, the first of it", "[engine][kernels]") {
    const std::vector<char> memory(static_cast<std::size_t>(ReadAhead::kMostBytes) + 4 * kCacheLine);
    ReadAhead ahead;
    ahead.add(memory.data(), kCacheLine);
    ahead.add(memory.data() + 3 * kCacheLine, memory.size() - 4 * kCacheLine);
    CHECK(ahead.lines() == ReadAhead::kMostBytes / kCacheLine);
    const std::int64_t runs = ahead.over(1).count;
    ahead.add(memory.data(), kCacheLine);
    CHECK(ahead.lines() == ReadAhead::kMostBytes / kCacheLine);
    CHECK(ahead.over(1).count == runs);
}

TEST_CASE("a weight's panels ask for every line once, in order, however they are taken", "[engine][kernels]") {
    const Lines memory{};
    ReadAhead ahead;
    std::vector<const char*> all;
    for (const auto& [first, count] : {std::pair{7, 5}, {20, 1}, {22, 1}, {0, 6}, {40, 11}}) {
        ahead.add(memory.line(first), static_cast<std::size_t>(count * kCacheLine));
        for (int i = 0; i < count; ++i) all.push_back(memory.line(first + i));
    }
    const std::int64_t panels = GENERATE(1, 2, 3, 7, 24, 50);
    const std::int64_t most = GENERATE(1, 2, 4, 100);
    CAPTURE(panels, most);
    const LinesAhead view = ahead.over(panels);
    REQUIRE(view.count == 5);
    std::vector<const char*> asked;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
        const auto lines = taken(view, panel, most);
        CHECK(static_cast<std::int64_t>(lines.size()) <= (view.lines + panels - 1) / panels);  // as equal as can be
        asked.insert(asked.end(), lines.begin(), lines.end());
    }
    CHECK(asked == all);
    LinesAhead rest = view;
    rest.first_panel = panels - 1;
    CHECK(taken(rest, 0, most) == taken(view, panels - 1, most));
    CHECK(taken(ReadAhead().over(panels), 0, most).empty());
}

constexpr int kPanels = 3;
constexpr int kOutputs = kPanels * kPanelOutputs;

/// Rows of a product, and what it is told to read ahead: a single run of fewer lines than it has columns, or more than
/// all of its blocks can ask for, in runs that end within a block and in odd numbers.
struct Asking {
    int rows = GENERATE(1, 5, 14, 32, 300);
    int runs = GENERATE(1, 40);
    Lines memory{};
    ReadAhead ahead;

    Asking() {
        for (int i = 0; i < runs; ++i) ahead.add(memory.line(2 * i % 50), 13 * kCacheLine);
    }
    /// run(call, first panel, last panel) gives the same bits with and without.
    template <class Run, class Call>
    void check(const Run& run, Call call) const {
        CAPTURE(rows, runs);
        const auto product = [&](const LinesAhead& lines) {
            std::vector<float> y(static_cast<std::size_t>(rows * kOutputs));
            call.y = y.data();
            call.y_stride = kOutputs;
            call.rows = rows;
            call.ahead = lines;
            run(call, 0, 1);
            run(call, 1, kPanels);
            return y;
        };
        const std::vector<float> with = product(ahead.over(kPanels));
        const std::vector<float> without = product({});
        CHECK(std::memcmp(with.data(), without.data(), with.size() * sizeof(float)) == 0);
    }
};

TEST_CASE_METHOD(Asking, "asking ahead changes no bit of a product", "[engine][kernels]") {
    constexpr int kColumns = 37;
    std::vector<float> x(static_cast<std::size_t>(300 * kColumns));
    std::vector<float> f32(static_cast<std::size_t>(kOutputs * kColumns));
    std::vector<Bf16> bf16(f32.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 257) / 128 - 1;
    for (std::size_t i = 0; i < f32.size(); ++i) {
        f32[i] = static_cast<float>(i * 104729 % 509) / 256 - 1;
        bf16[i] = to_bf16(f32[i]);
    }
    for (const CpuKernels* set : testing::kernel_sets()) {
        CAPTURE(set->name);
        GemmCall call;
        call.x = x.data();
        call.x_stride = call.columns = kColumns;
        call.panels = f32.data();
        check(set->gemm_f32, call);
        call.panels = bf16.data();
        check(set->gemm_bf16, call);
    }
    if (const Bf16DotKernels* dots = bf16_dot_kernels()) {
        const std::vector<Bf16> rounded(static_cast<std::size_t>(300 * bf16_row_elements(kColumns)), to_bf16(0.75F));
        Bf16DotCall call;
        call.x = rounded.data();
        call.columns = kColumns;
        call.panels = bf16.data();
        check(dots->gemm, call);
    }
}

TEST_CASE_METHOD(Asking, "asking ahead changes no bit of a quantised product", "[engine][kernels][quant]") {
    constexpr int kGroups = 3;
    const auto all = static_cast<std::size_t>(300 * kGroups);
    std::vector<std::int8_t> codes(all * kQuantGroup);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(i * 7919 % 255 - 127);
    const std::vector<float> scales(all, 0.01F);
    const std::vector<std::int32_t> sums(all, 5);
    std::vector<std::uint8_t> panels(kPanels * kGroups * group_bytes(Quant::int8));  // of all forms the largest
    for (std::size_t i = 0; i < panels.size(); ++i) panels[i] = static_cast<std::uint8_t>(i * 104729 % 59);
    for (const QuantKernels* set : testing::quant_kernel_sets()) {
        for (const Quant quant : {Quant::int8, Quant::int4, Quant::int4_min}) {
            CAPTURE(set->name, static_cast<int>(quant));
            QuantGemmCall call;
            call.codes = codes.data();
            call.scales = scales.data();
            call.sums = sums.data();
            call.groups = kGroups;
            call.panels = panels.data();
            check(set->gemm(quant), call);
        }
    }
}

}  // namespace
}  // namespace attune
