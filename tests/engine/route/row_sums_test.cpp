#include "engine/kernels/row_sums.hpp"
#include "support/kernel_words.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

using namespace attune;

namespace {

constexpr std::size_t kRows = 50;

struct Sums {
    std::vector<std::uint16_t> table;  ///< [kRows, stride], finite bfloat16
    std::vector<std::uint32_t> rows;
    std::size_t stride = 0;

    Sums(std::size_t columns, std::size_t count) : stride(row_sums_stride(columns)) {
        std::minstd_rand random(static_cast<unsigned>(columns * 1000 + count));
        table.resize(kRows * stride);
        for (std::uint16_t& one : table)
            one = static_cast<std::uint16_t>((random() & 1) << 15 | (0x3E00 + random() % 0x300));
        for (std::size_t i = 0; i < count; ++i) rows.push_back(static_cast<std::uint32_t>(random() % kRows));
    }

    std::vector<float> one_by_one() const {
        std::vector<float> sums(stride);
        for (const std::uint32_t row : rows)
            for (std::size_t c = 0; c < stride; ++c)
                sums[c] += std::bit_cast<float>(static_cast<std::uint32_t>(table[row * stride + c]) << 16);
        return sums;
    }
};

struct Limited {
    explicit Limited(const std::string& word) { limit_instruction_set(*parse_instruction_set(word)); }
    ~Limited() { limit_instruction_set(InstructionSet::best); }
};

}  // namespace

TEST_CASE("sums of rows are the same bits on every instruction set, as they were added one by one",
          "[engine][route][kernels]") {
    for (const std::string& word : testing::kernel_words()) {
        const Limited limited(word);
        for (const std::size_t columns : {2, 8, 9, 16, 17, 32, 53, 64, 96, 128, 200, 256})
            for (const std::size_t count : {0, 1, 15, 16, 17, 300}) {
                CAPTURE(word, columns, count);
                const Sums wanted(columns, count);
                std::vector<float> sums(wanted.stride, 7.0F);
                row_sums(wanted.table.data(), wanted.rows, sums);
                CHECK(sums == wanted.one_by_one());
            }
    }
}

TEST_CASE("a table's rows are whole vectors, and small ones where it has few columns", "[engine][route][kernels]") {
    CHECK(row_sums_stride(2) == 8);
    CHECK(row_sums_stride(9) == 16);
    CHECK(row_sums_stride(17) == 32);
    CHECK(row_sums_stride(53) == 64);
    CHECK(row_sums_stride(256) == 256);
}
