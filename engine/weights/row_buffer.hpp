#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace attune {

/// Rows of float32 whose memory is kept from step to step and grows with them.
class RowBuffer {
public:
    /// [rows, columns], contiguous; what an earlier call gave is overwritten from now on.
    const torch::Tensor& rows(std::int64_t rows, std::int64_t columns);
    /// The same for a result: memory that somebody else still holds is left to them.
    const torch::Tensor& result(std::int64_t rows, std::int64_t columns);

private:
    torch::Tensor memory_;  // [floats]
    torch::Tensor view_;    // the last rows() of it
};

}  // namespace attune
