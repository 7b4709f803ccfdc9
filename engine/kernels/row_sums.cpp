#include "engine/kernels/row_sums.hpp"

#include "engine/kernels/instruction_set.hpp"

namespace attune {

using RowSums = void(const std::uint16_t* table, std::size_t stride, const std::uint32_t* rows, std::size_t count,
                     float* sums);

namespace row_sums_v4 {
RowSums row_sums;
}
namespace row_sums_v3 {
RowSums row_sums;
}
namespace row_sums_baseline {
RowSums row_sums;
}

void row_sums(const std::uint16_t* table, std::span<const std::uint32_t> rows, std::span<float> sums) {
    RowSums* chosen = row_sums_baseline::row_sums;
#if defined(__x86_64__)
    if (may_use(InstructionSet::v4))
        chosen = row_sums_v4::row_sums;
    else if (may_use(InstructionSet::v3))
        chosen = row_sums_v3::row_sums;
#endif
    chosen(table, sums.size(), rows.data(), rows.size(), sums.data());
}

}  // namespace attune
