// y += sum of weight * scale * ((x A^T) B^T): the modules' low-rank products, and dense ones as pairs without A.

#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <vector>

namespace attune {
namespace {

// Without A the inputs are sums that cost nothing to make again, and B may be a whole dense matrix, too much for one
// thread: its outputs are split as well. Each is a chain of its own, so that changes no bit.
constexpr int kSplitRank = 64;
constexpr int kTaskOutputs = 256;
static_assert(kTaskOutputs % kLoraPanelOutputs == 0);

void add_tasks(const LoraCall& call, std::size_t element_bytes, std::vector<LoraCall>& tasks) {
    if (call.a != nullptr || call.rank < kSplitRank) {
        tasks.push_back(call);
        return;
    }
    for (int first = 0; first < call.out; first += kTaskOutputs) {
        LoraCall part = call;
        part.y += first;
        part.out = std::min(kTaskOutputs, call.out - first);
        part.b = static_cast<const std::uint8_t*>(call.b) + packed_b_elements(first, call.rank) * element_bytes;
        tasks.push_back(part);
    }
}

}  // namespace

float* ModuleSlots::Impl::scratch(std::size_t count, int use) {
    thread_local std::vector<float> buffers[2];
    std::vector<float>& buffer = buffers[use];
    if (buffer.size() < count) buffer.resize(count);
    return buffer.data();
}

torch::Tensor ModuleSlots::Impl::tensor(const SlotContent& content, int index) const {
    const SlotArray& array = content.array(index);
    const auto view = [&](torch::Dtype dtype, std::int64_t rows, std::int64_t columns) {
        const auto bytes = static_cast<std::int64_t>(c10::elementSize(dtype)) * rows * columns;
        return memory.narrow(0, static_cast<std::int64_t>(array.offset), bytes).view(dtype).view({rows, columns});
    };
    switch (array.form) {
        case ArrayForm::ids:
            return view(torch::kInt32, 1, array.rows).select(0, 0);
        case ArrayForm::floats: {
            const torch::Tensor floats = view(torch::kFloat32, array.rows, array.columns);
            return array.rows == 1 ? floats.select(0, 0) : floats;
        }
        case ArrayForm::matrix:
            return view(options.dtype, array.rows, array.columns);
        case ArrayForm::panels:
            break;
    }
    if (!kernels) return view(options.dtype, array.columns, array.rows);
    const std::int64_t panels = (array.rows + kLoraPanelOutputs - 1) / kLoraPanelOutputs;
    return view(options.dtype, panels * array.columns, kLoraPanelOutputs)
        .view({panels, array.columns, kLoraPanelOutputs})
        .permute({1, 0, 2})
        .reshape({array.columns, panels * kLoraPanelOutputs})
        .narrow(1, 0, array.rows);
}

torch::Tensor ModuleSlots::Impl::values(const SlotContent& content, int array) const {
    return tensor(content, array).to(torch::kFloat32);
}

void ModuleSlots::Impl::put_on_device(SlotPlan::Group& group) const {
    group.index = torch::tensor(group.rows, torch::kInt64).to(device);
    group.column = torch::tensor(group.weights, torch::kFloat32).unsqueeze(1).to(device);
}

void ModuleSlots::Impl::pairs_kernels(std::size_t site, Projection projection, const torch::Tensor& x, torch::Tensor& y,
                                      const SlotPlan& plan) const {
    const auto run = options.dtype == torch::kBFloat16 ? lora_kernels().apply_bf16 : lora_kernels().apply_f32;
    LoraCall call;
    call.x = x.data_ptr<float>();
    call.x_stride = x.stride(0);
    call.y = y.data_ptr<float>();
    call.y_stride = y.stride(0);
    call.in = shape.in_features(projection);
    call.out = shape.out_features(projection);
    static thread_local std::vector<LoraCall> tasks;
    for (const auto& level : plan.levels) {
        tasks.clear();
        std::int64_t work = 0;
        for (const SlotPlan::Group& group : level) {
            const SlotContent::Pair* pair = group.content->pair(site);
            if (pair == nullptr) continue;
            call.rank = pair->rank;
            call.scale = pair->scale;
            call.a = bytes(*group.content, pair->a);
            call.b = bytes(*group.content, pair->b);
            const int rows = static_cast<int>(group.rows.size());
            for (int first = 0; first < rows; first += kTaskRows) {
                call.rows = group.rows.data() + first;
                call.weights = group.weights.data() + first;
                call.count = std::min(kTaskRows, rows - first);
                add_tasks(call, element_bytes(), tasks);
            }
            work += static_cast<std::int64_t>(rows) * pair->rank * (call.in + call.out);
        }
        // Every value of y is in one task, so threads never meet.
        const std::vector<LoraCall>& all = tasks;
        run_tasks(static_cast<std::int64_t>(all.size()), work, [&](std::int64_t i) {
            const LoraCall& task = all[static_cast<std::size_t>(i)];
            run(task, scratch(static_cast<std::size_t>(task.count) * static_cast<std::size_t>(task.rank)));
        });
    }
}

// Functional: y stays as it is. Sums in float32 whatever y's dtype; rows without modules come back bit for bit, since a
// bfloat16 survives the way through float32.
torch::Tensor ModuleSlots::Impl::pairs_torch(std::size_t site, const torch::Tensor& x, const torch::Tensor& y,
                                             const SlotPlan& plan) const {
    torch::Tensor sum = y.to(torch::kFloat32);
    for (const auto& level : plan.levels) {
        for (SlotPlan::Group group : level) {
            const SlotContent::Pair* pair = group.content->pair(site);
            if (pair == nullptr) continue;
            if (!group.index.defined()) put_on_device(group);  // gradients on a machine that serves with kernels
            const torch::Tensor rows = x.index_select(0, group.index).to(torch::kFloat32);
            torch::Tensor t;  // [rows, rank]
            if (pair->a != SlotContent::kNone) {
                t = torch::matmul(rows, values(*group.content, pair->a).t());
            } else {
                const std::int64_t shards = (rows.size(1) + pair->rank - 1) / pair->rank;
                t = torch::constant_pad_nd(rows, {0, shards * pair->rank - rows.size(1)})
                        .view({rows.size(0), shards, pair->rank})
                        .sum(1);
            }
            const torch::Tensor delta =
                torch::matmul(t, values(*group.content, pair->b)) * (group.column * pair->scale);
            sum = sum.index_add(0, group.index, delta);
        }
    }
    return sum.to(y.scalar_type());
}

}  // namespace attune
