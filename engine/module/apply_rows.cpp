// Rows of the input embedding and of the head: replaced ones, those of new tokens, LoRA on the embedding, soft prompts.

#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace attune {
namespace {

// Rows of the head that one task multiplies: their inputs stay in the first-level cache.
constexpr int kHeadTaskTokens = 256;

/// Where `token` stands among ascending ids, or -1.
std::int64_t place_of(const std::int32_t* ids, std::int64_t count, TokenId token) {
    const auto* at = std::lower_bound(ids, ids + count, token);
    return at != ids + count && *at == token ? at - ids : -1;
}

float widen(float value) { return value; }
float widen(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

/// to += weight * row `index` of a stored matrix.
template <class Element>
void add_row(float* to, const void* matrix, std::int64_t index, int columns, float weight) {
    const Element* row = static_cast<const Element*>(matrix) + index * columns;
    for (int k = 0; k < columns; ++k) to[k] += weight * widen(row[k]);
}

}  // namespace

void ModuleSlots::Impl::embedding_kernels(std::span<const TokenId> tokens, torch::Tensor& x,
                                          const SlotPlan& plan) const {
    const bool bf16 = options.dtype == torch::kBFloat16;
    const auto add = bf16 ? add_row<std::uint16_t> : add_row<float>;
    const auto expand = bf16 ? lora_kernels().expand_bf16 : lora_kernels().expand_f32;
    const int hidden = shape.hidden_size;
    float* values = x.data_ptr<float>();
    for (const PlannedSegment& segment : plan.segments) {
        for (std::int32_t row = segment.first; row < segment.first + segment.rows; ++row) {
            const TokenId token = tokens[static_cast<std::size_t>(row)];
            float* to = values + row * x.stride(0);
            const bool is_new = token >= shape.vocab_size;  // the base's row is zero
            if (is_new) std::fill_n(to, hidden, 0.0F);
            for (const auto& [content, weight] : segment.modules) {
                if (token < 0) {
                    if (content->prompt_rows == SlotContent::kNone) continue;
                    TORCH_CHECK(-1 - token < content->array(content->prompt_rows).rows,
                                "a virtual token beyond its prompt");
                    const float* from =
                        floats(*content, content->prompt_rows) + static_cast<std::ptrdiff_t>(-1 - token) * hidden;
                    std::copy(from, from + hidden, to);
                    break;
                }
                if (is_new) {
                    const int at = token - shape.vocab_size;
                    if (content->new_input != SlotContent::kNone && at < content->array(content->new_input).rows)
                        add(to, bytes(*content, content->new_input), at, hidden, weight);
                    continue;
                }
                const SlotContent::Embedding& term = content->embedding;
                if (term.rank > 0) {
                    float* t = scratch(static_cast<std::size_t>(term.rank));
                    std::fill_n(t, term.rank, 0.0F);
                    add(t, bytes(*content, term.a), token, term.rank, 1.0F);
                    LoraCall call;
                    call.y = values;
                    call.y_stride = x.stride(0);
                    call.rows = &row;
                    call.weights = &weight;
                    call.count = 1;
                    call.out = hidden;
                    call.rank = term.rank;
                    call.scale = term.scale;
                    call.b = bytes(*content, term.b);
                    expand(call, t);
                }
                if (term.rows != SlotContent::kNone) {
                    const std::int64_t at = place_of(ids(*content, term.ids), content->array(term.ids).rows, token);
                    if (at >= 0) add(to, bytes(*content, term.rows), at, hidden, weight);
                }
            }
        }
    }
}

torch::Tensor ModuleSlots::Impl::embedding_torch(std::span<const TokenId> tokens, const torch::Tensor& x,
                                                 const SlotPlan& plan) const {
    const auto on_device = [&](const std::vector<std::int64_t>& list) {
        return torch::tensor(list, torch::kInt64).to(device);
    };
    const auto piece = [&](const PlannedSegment& segment, const torch::Tensor& before) {
        std::vector<std::int64_t> real;      // rows of the segment that hold a token of the vocabulary
        std::vector<std::int64_t> ids;       // their tokens
        std::vector<std::int64_t> standing;  // those of virtual tokens
        std::vector<std::int64_t> virtual_ids;
        std::vector<std::int64_t> added;  // those of new tokens
        std::vector<std::int64_t> new_ids;
        for (int row = 0; row < segment.rows; ++row) {
            const TokenId token = tokens[static_cast<std::size_t>(segment.first + row)];
            if (token < 0) {
                standing.push_back(row);
                virtual_ids.push_back(-1 - token);
            } else if (token >= shape.vocab_size) {
                added.push_back(row);
                new_ids.push_back(token - shape.vocab_size);
            } else {
                real.push_back(row);
                ids.push_back(token);
            }
        }
        torch::Tensor sum = before;
        if (!added.empty()) sum = sum.index_fill(0, on_device(added), 0);  // the base's rows are zero
        bool prompted = false;
        for (const auto& [content, weight] : segment.modules) {
            const SlotContent::Embedding& term = content->embedding;
            if (content->prompt_rows != SlotContent::kNone && !standing.empty() && !prompted) {
                prompted = true;
                const torch::Tensor rows = tensor(*content, content->prompt_rows).view({-1, shape.hidden_size});
                sum = sum.index_copy(0, on_device(standing), rows.index_select(0, on_device(virtual_ids)));
            }
            if (content->new_input != SlotContent::kNone) {
                std::vector<std::int64_t> at;
                std::vector<std::int64_t> from;
                for (std::size_t i = 0; i < added.size(); ++i) {
                    if (new_ids[i] >= content->array(content->new_input).rows) continue;
                    at.push_back(added[i]);
                    from.push_back(new_ids[i]);
                }
                const torch::Tensor rows = tensor(*content, content->new_input).index_select(0, on_device(from));
                sum = sum.index_add(0, on_device(at), rows.to(torch::kFloat32) * weight);
            }
            if (term.rank > 0 && !real.empty()) {
                const torch::Tensor a = tensor(*content, term.a).index_select(0, on_device(ids)).to(torch::kFloat32);
                sum = sum.index_add(0, on_device(real),
                                    torch::matmul(a, values(*content, term.b)) * (weight * term.scale));
            }
            if (term.rows == SlotContent::kNone) continue;
            const torch::Tensor replaced = tensor(*content, term.ids).to(torch::kCPU);
            std::vector<std::int64_t> at;
            std::vector<std::int64_t> from;
            for (std::size_t i = 0; i < real.size(); ++i) {
                const std::int64_t place =
                    place_of(replaced.const_data_ptr<std::int32_t>(), replaced.size(0), static_cast<TokenId>(ids[i]));
                if (place < 0) continue;
                at.push_back(real[i]);
                from.push_back(place);
            }
            if (at.empty()) continue;
            const torch::Tensor rows = tensor(*content, term.rows).index_select(0, on_device(from));
            sum = sum.index_add(0, on_device(at), rows.to(torch::kFloat32) * weight);
        }
        return sum;
    };
    return by_segment(
        x, plan, [](const SlotContent& content) { return content.embeds(); }, piece);
}

void ModuleSlots::Impl::head_rows_kernels(const torch::Tensor& x, torch::Tensor& y, const SlotPlan& plan) const {
    const auto shrink = options.dtype == torch::kBFloat16 ? lora_kernels().shrink_bf16 : lora_kernels().shrink_f32;
    for (const auto& level : plan.levels) {
        for (const SlotPlan::Group& group : level) {
            const SlotContent& content = *group.content;
            if (content.head_rows == SlotContent::kNone) continue;
            const std::int32_t* tokens = ids(content, content.head_ids);
            const int count = content.array(content.head_ids).rows;
            const int rows = static_cast<int>(group.rows.size());
            const int row_tasks = (rows + kTaskRows - 1) / kTaskRows;
            const int token_tasks = (count + kHeadTaskTokens - 1) / kHeadTaskTokens;
            const std::int64_t work = static_cast<std::int64_t>(rows) * count * shape.hidden_size;
            run_tasks(static_cast<std::int64_t>(row_tasks) * token_tasks, work, [&](std::int64_t task) {
                const int first_row = static_cast<int>(task / token_tasks) * kTaskRows;
                const int first_token = static_cast<int>(task % token_tasks) * kHeadTaskTokens;
                LoraCall call;
                call.x = x.const_data_ptr<float>();
                call.x_stride = x.stride(0);
                call.rows = group.rows.data() + first_row;
                call.count = std::min(kTaskRows, rows - first_row);
                call.in = shape.hidden_size;
                call.rank = std::min(kHeadTaskTokens, count - first_token);
                call.a = static_cast<const std::uint8_t*>(bytes(content, content.head_rows)) +
                         static_cast<std::size_t>(first_token) * static_cast<std::size_t>(shape.hidden_size) *
                             element_bytes();
                float* t = scratch(static_cast<std::size_t>(call.count) * static_cast<std::size_t>(call.rank));
                shrink(call, t);
                for (int i = 0; i < call.count; ++i, t += call.rank) {
                    float* to = y.data_ptr<float>() + call.rows[i] * y.stride(0);
                    const float weight = group.weights[static_cast<std::size_t>(first_row + i)];
                    for (int k = 0; k < call.rank; ++k) to[tokens[first_token + k]] += weight * t[k];
                }
            });
        }
    }
}

torch::Tensor ModuleSlots::Impl::head_rows_torch(const torch::Tensor& x, const torch::Tensor& y,
                                                 const SlotPlan& plan) const {
    torch::Tensor sum = y;
    for (const auto& level : plan.levels) {
        for (SlotPlan::Group group : level) {
            const SlotContent& content = *group.content;
            if (content.head_rows == SlotContent::kNone) continue;
            if (!group.index.defined()) put_on_device(group);
            const torch::Tensor delta =
                torch::matmul(x.index_select(0, group.index), values(content, content.head_rows).t()) * group.column;
            const torch::Tensor wide = torch::zeros({delta.size(0), y.size(1)}, y.options());
            sum = sum.index_add(0, group.index, wide.index_add(1, tensor(content, content.head_ids), delta));
        }
    }
    return sum;
}

torch::Tensor ModuleSlots::new_token_logits(const torch::Tensor& hidden, const Batch& batch,
                                            std::span<const std::int32_t> rows, int count) const {
    const Impl& impl = *impl_;
    torch::Tensor logits = torch::zeros({hidden.size(0), count}, hidden.options().dtype(torch::kFloat32));
    const auto planned = plan(batch, rows);
    for (const PlannedSegment& segment : planned->segments)
        for (const auto& [content, weight] : segment.modules) {
            if (content->new_head == SlotContent::kNone) continue;
            const int known = std::min(content->array(content->new_head).rows, count);
            if (!impl.kernels) {
                const torch::Tensor head = impl.values(*content, content->new_head).narrow(0, 0, known);
                logits.narrow(0, segment.first, segment.rows)
                    .narrow(1, 0, known)
                    .add_(torch::matmul(hidden.narrow(0, segment.first, segment.rows).to(torch::kFloat32), head.t()),
                          weight);
                continue;
            }
            impl.new_head_kernels(*content, weight, segment, hidden, known, logits);
        }
    return logits;
}

void ModuleSlots::Impl::new_head_kernels(const SlotContent& content, float weight, const PlannedSegment& segment,
                                         const torch::Tensor& hidden, int count, torch::Tensor& logits) const {
    const auto shrink = options.dtype == torch::kBFloat16 ? lora_kernels().shrink_bf16 : lora_kernels().shrink_f32;
    const int tasks = (count + kHeadTaskTokens - 1) / kHeadTaskTokens;
    const std::int64_t work = static_cast<std::int64_t>(segment.rows) * count * shape.hidden_size;
    run_tasks(static_cast<std::int64_t>(segment.rows) * tasks, work, [&](std::int64_t task) {
        const auto row = static_cast<std::int32_t>(segment.first + task / tasks);
        const int first = static_cast<int>(task % tasks) * kHeadTaskTokens;
        LoraCall call;
        call.x = hidden.const_data_ptr<float>();
        call.x_stride = hidden.stride(0);
        call.rows = &row;
        call.count = 1;
        call.in = shape.hidden_size;
        call.rank = std::min(kHeadTaskTokens, count - first);
        call.a = static_cast<const std::uint8_t*>(bytes(content, content.new_head)) +
                 static_cast<std::size_t>(first) * static_cast<std::size_t>(shape.hidden_size) * element_bytes();
        float* t = scratch(static_cast<std::size_t>(call.rank));
        shrink(call, t);
        float* to = logits.data_ptr<float>() + row * logits.stride(0) + first;
        for (int k = 0; k < call.rank; ++k) to[k] += weight * t[k];
    });
}

}  // namespace attune
