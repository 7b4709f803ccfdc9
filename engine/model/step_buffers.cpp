#include "engine/model/step_buffers.hpp"

#include <algorithm>

namespace attune {

namespace {

StepBuffers::Product product_of(torch::Tensor whole, const Weight& weight) {
    StepBuffers::Product product;
    for (std::size_t part = 0; part < weight.parts(); ++part)
        product.part.at(part) = whole.narrow(1, weight.part(part).first_output, weight.part(part).rows);
    product.whole = std::move(whole);
    return product;
}

}  // namespace

void StepBuffers::fit(std::int64_t rows, const ModelShape& shape, const Weight& qkv_weight, const Weight& o_weight,
                      const Weight& gate_up_weight, const Weight& down_weight) {
    if (rows == rows_) return;
    rows_ = rows;
    x = x_.rows(rows, shape.hidden_size);
    normed = normed_.rows(rows, shape.hidden_size);
    cos = cos_.rows(rows, shape.head_dim / 2);
    sin = sin_.rows(rows, shape.head_dim / 2);
    const auto shared = [&](RowBuffer& buffer, std::int64_t columns, std::int64_t other) {
        return buffer.rows(rows, std::max(columns, other))
            .view({-1})
            .narrow(0, 0, rows * columns)
            .view({rows, columns});
    };
    const std::int64_t heads = std::int64_t{shape.heads} * shape.head_dim;
    mixed = shared(inner_, heads, shape.intermediate_size);
    inner = shared(inner_, shape.intermediate_size, heads);
    qkv = product_of(shared(wide_, qkv_weight.outputs(), gate_up_weight.outputs()), qkv_weight);
    gate_up = product_of(shared(wide_, gate_up_weight.outputs(), qkv_weight.outputs()), gate_up_weight);
    o = product_of(shared(delta_, o_weight.outputs(), down_weight.outputs()), o_weight);
    down = product_of(shared(delta_, down_weight.outputs(), o_weight.outputs()), down_weight);
}

}  // namespace attune
