#include "engine/weights/row_buffer.hpp"

#include <c10/core/InferenceMode.h>

namespace attune {

const torch::Tensor& RowBuffer::rows(std::int64_t rows, std::int64_t columns) {
    if (view_.defined() && view_.size(0) == rows && view_.size(1) == columns) return view_;
    // Ordinary tensors: they may be used in inference mode and outside of it.
    const c10::InferenceMode ordinary(false);
    const torch::NoGradGuard no_grad;
    if (!memory_.defined() || memory_.size(0) < rows * columns)
        memory_ = torch::empty({rows * columns}, torch::kFloat32);
    view_ = memory_.narrow(0, 0, rows * columns).view({rows, columns});
    return view_;
}

const torch::Tensor& RowBuffer::result(std::int64_t rows, std::int64_t columns) {
    // Alone, the memory is known to memory_ and view_, and view_ to nobody else.
    if (memory_.defined() && (view_.use_count() > 1 || memory_.storage().use_count() > 2)) {
        memory_ = torch::Tensor();
        view_ = torch::Tensor();
    }
    return this->rows(rows, columns);
}

}  // namespace attune
