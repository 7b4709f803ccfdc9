// y += sum of weight * scale * ((x A^T) B^T): the modules' low-rank products, and dense ones as pairs without A.

#include "engine/kernels/read_ahead.hpp"
#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

namespace attune {
namespace {

// Without A the inputs are sums that cost nothing to make again, and B may be a whole dense matrix, too much for one
// thread: its outputs are split as well. Each is a chain of its own, so that changes no bit.
constexpr int kSplitRank = 64;
constexpr int kTaskOutputs = 256;
static_assert(kTaskOutputs % kLoraPanelOutputs == 0);

/// Calls on the same rows, done by one thread one after the other, so that those that share an input find it in the
/// cache. No value is written by two tasks.
struct PairTasks {
    std::vector<LoraCall> calls;
    std::vector<std::size_t> ends;  // of each task's calls
    std::int64_t work = 0;          // multiply-adds

    void clear() {
        work = 0;
        calls.clear();
        ends.clear();
    }
    void end_task() {
        if (calls.size() > (ends.empty() ? 0 : ends.back())) ends.push_back(calls.size());
    }
    void add(const LoraCall& call, std::size_t element_bytes) {
        work += static_cast<std::int64_t>(call.count) * call.rank * (call.in + call.out);
        if (call.a != nullptr || call.rank < kSplitRank) {
            calls.push_back(call);
            return;
        }
        for (int first = 0; first < call.out; first += kTaskOutputs) {
            end_task();
            LoraCall part = call;
            part.y += first;
            part.out = std::min(kTaskOutputs, call.out - first);
            part.b = static_cast<const std::uint8_t*>(call.b) + packed_b_elements(first, call.rank) * element_bytes;
            calls.push_back(part);
        }
        end_task();
    }
    std::span<const LoraCall> task(std::size_t index) const {
        const std::size_t begin = index == 0 ? 0 : ends[index - 1];
        return std::span(calls).subspan(begin, ends[index] - begin);
    }
};

/// Goes through a level's pairs of several projections, group by group.
class PairsLeft {
public:
    PairsLeft(const BySite<PlannedPair>& pairs, int layer, std::span<const ModuleSlots::Product> products) {
        TORCH_CHECK(products.size() <= left_.size(), "too many projections of one input");
        for (std::size_t i = 0; i < products.size(); ++i)
            left_.at(i) = pairs.at(SlotContent::site(layer, products[i].projection));
    }
    /// The lowest group that has a pair; none: all are dropped.
    std::optional<std::size_t> next_group() const {
        std::optional<std::size_t> group;
        for (const auto& pairs : left_)
            if (!pairs.empty() && (!group || pairs.front().group < *group)) group = pairs.front().group;
        return group;
    }
    const PlannedPair* pair(std::size_t product, std::size_t group) const {
        const auto& pairs = left_.at(product);
        return !pairs.empty() && pairs.front().group == group ? &pairs.front() : nullptr;
    }
    void drop(std::size_t group) {
        for (auto& pairs : left_)
            if (!pairs.empty() && pairs.front().group == group) pairs = pairs.subspan(1);
    }

private:
    std::array<std::span<const PlannedPair>, 3> left_;
};

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

void ModuleSlots::Impl::pairs_kernels(int layer, std::span<const Product> products, const torch::Tensor& x,
                                      const SlotPlan& plan) const {
    const auto run = options.dtype == torch::kBFloat16 ? lora_kernels().apply_bf16 : lora_kernels().apply_f32;
    static thread_local PairTasks buffer;
    PairTasks& tasks = buffer;  // this thread's, whoever runs them
    for (std::size_t depth = 0; depth < plan.levels.size(); ++depth) {
        tasks.clear();
        PairsLeft left(plan.level_pairs[depth], layer, products);
        while (const auto group = left.next_group()) {
            const auto& [slot, rows, weights] = static_cast<const SlotGroup&>(plan.levels[depth][*group]);
            const int count = static_cast<int>(rows.size());
            for (int first = 0; first < count; first += kTaskRows) {
                for (std::size_t i = 0; i < products.size(); ++i) {
                    const PlannedPair* pair = left.pair(i, *group);
                    if (pair == nullptr) continue;
                    LoraCall call;
                    call.x = x.const_data_ptr<float>();
                    call.x_stride = x.stride(0);
                    call.y = products[i].y->mutable_data_ptr<float>();
                    call.y_stride = products[i].y->stride(0);
                    call.rows = rows.data() + first;
                    call.weights = weights.data() + first;
                    call.count = std::min(kTaskRows, count - first);
                    call.in = shape.in_features(products[i].projection);
                    call.out = shape.out_features(products[i].projection);
                    call.rank = pair->rank;
                    call.scale = pair->scale;
                    call.a = pair->a;
                    call.b = pair->b;
                    tasks.add(call, element_bytes());
                }
                tasks.end_task();
            }
            left.drop(*group);
        }
        run_tasks(static_cast<std::int64_t>(tasks.ends.size()), tasks.work, [&](std::int64_t i) {
            for (const LoraCall& call : tasks.task(static_cast<std::size_t>(i)))
                run(call, scratch(static_cast<std::size_t>(call.count) * static_cast<std::size_t>(call.rank)));
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

void ModuleSlots::add_reads(int layer, std::span<const Product> products, const SlotPlan& plan,
                            ReadAhead& ahead) const {
    if (!impl_->kernels) return;
    const auto shape_of = [&](const Product& product) {
        return std::pair(static_cast<std::size_t>(impl_->shape.in_features(product.projection)),
                         static_cast<std::size_t>(impl_->shape.out_features(product.projection)));
    };
    for (const Product& product : products) {
        const std::size_t site = SlotContent::site(layer, product.projection);
        if (plan.is_merged(site)) continue;  // gains lie in the base then
        const std::size_t bytes = shape_of(product).second * sizeof(float);
        for (const PlannedTerm& term : plan.site_terms.at(site)) {
            ahead.add(term.gain, bytes);
            ahead.add(term.add, bytes);
        }
    }
    for (const BySite<PlannedPair>& pairs : plan.level_pairs) {
        PairsLeft left(pairs, layer, products);
        while (const auto group = left.next_group()) {
            for (std::size_t i = 0; i < products.size(); ++i) {
                const PlannedPair* pair = left.pair(i, *group);
                if (pair == nullptr) continue;
                const auto [in, out] = shape_of(products[i]);
                ahead.add(pair->a, static_cast<std::size_t>(pair->rank) * in * impl_->element_bytes());
                ahead.add(pair->b, packed_b_elements(static_cast<int>(out), pair->rank) * impl_->element_bytes());
            }
            left.drop(*group);
        }
    }
}

}  // namespace attune
