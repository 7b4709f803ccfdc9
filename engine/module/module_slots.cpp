#include "engine/module/module_slots.hpp"

#include "engine/files/quote.hpp"
#include "engine/kernels/lora.hpp"
#include "engine/module/arena.hpp"
#include "engine/module/slot_groups.hpp"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attune {

namespace {

// Rows that one task of the kernel path takes: few enough to split a prompt over threads, enough to reuse A and B.
constexpr int kTaskRows = 16;
// Multiply-adds below which a second thread costs more than it saves.
constexpr std::int64_t kParallelWork = 200'000;

// A pair as it lies in the arena: A as [rank, in], B as panels (kernels) or as [rank, out] (libtorch).
struct Fragment {
    std::uint64_t a_offset = 0;
    std::uint64_t b_offset = 0;
    int rank = 0;  // 0: the module does not touch this place
    float scale = 1.0F;
};

struct Slot {
    ModulePtr module;
    std::vector<Fragment> fragments;  // [layers * kProjections]
};

std::uint64_t element_bytes(torch::Dtype dtype) { return c10::elementSize(dtype); }

std::uint64_t a_bytes(int in, int rank, torch::Dtype dtype) {
    return Arena::rounded(static_cast<std::uint64_t>(in) * static_cast<std::uint64_t>(rank) * element_bytes(dtype));
}

std::uint64_t b_bytes(int out, int rank, torch::Dtype dtype) {
    return Arena::rounded(packed_b_elements(out, rank) * element_bytes(dtype));
}

std::size_t place(int layer, Projection projection) {
    return static_cast<std::size_t>(layer) * kProjections + static_cast<std::size_t>(projection);
}

}  // namespace

class SlotPlan {
public:
    struct Group : SlotGroup {
        torch::Tensor index;   // [rows], int64 on the device; libtorch path only
        torch::Tensor column;  // [rows, 1], the weights, float32 on the device; libtorch path only
    };
    std::vector<std::vector<Group>> levels;
    std::vector<bool> touched;  // [layers * kProjections]
};

struct ModuleSlots::State {
    State(const ModelShape& model_shape, const Options& slot_options, torch::Device on)
        : shape(model_shape),
          options(slot_options),
          device(on),
          kernels(on.is_cpu() && !slot_options.torch_kernels),
          arena(slot_options.device_bytes) {
        // A plain tensor, so that training may read it: inference tensors are closed to autograd.
        const c10::InferenceMode guard(false);
        memory = torch::empty({static_cast<std::int64_t>(arena.capacity())},
                              torch::TensorOptions().dtype(torch::kUInt8).device(device));
    }

    Result<void> check(const Module& module) const;
    std::optional<std::vector<Fragment>> take(const Module& module);
    void give(const std::vector<Fragment>& fragments);
    void fill(const LowRankPair& pair, const Fragment& fragment);

    const Fragment& fragment(SlotId slot, int layer, Projection projection) const {
        return slots[static_cast<std::size_t>(value_of(slot))].fragments[place(layer, projection)];
    }
    void put_on_device(SlotPlan::Group& group) const {
        group.index = torch::tensor(group.rows, torch::kInt64).to(device);
        group.column = torch::tensor(group.weights, torch::kFloat32).unsqueeze(1).to(device);
    }
    torch::Tensor view(std::uint64_t offset, std::int64_t rows, std::int64_t columns) const;
    torch::Tensor matrix_a(const Fragment& fragment, int in) const;
    torch::Tensor matrix_b(const Fragment& fragment, int out) const;

    void apply_kernels(int layer, Projection projection, const torch::Tensor& x, torch::Tensor& y,
                       const SlotPlan& plan) const;
    torch::Tensor apply_torch(int layer, Projection projection, const torch::Tensor& x, const torch::Tensor& y,
                              const SlotPlan& plan) const;

    ModelShape shape;
    Options options;
    torch::Device device;
    bool kernels;
    Arena arena;
    torch::Tensor memory;  // [device_bytes], uint8
    std::vector<Slot> slots;
};

Result<void> ModuleSlots::State::check(const Module& module) const {
    const auto refuse = [&](const LowRankPair& pair, const std::string& fault) {
        return make_error(Errc::invalid_module, "module " + in_quotes(module.id.name) + ": layer " +
                                                    std::to_string(pair.layer) + " " +
                                                    std::string(projection_name(pair.projection)) + " " + fault);
    };
    std::vector<bool> seen(static_cast<std::size_t>(shape.layer_count()) * kProjections);
    for (const LowRankPair& pair : module.pairs) {
        if (pair.layer < 0 || pair.layer >= shape.layer_count()) return refuse(pair, "is not in this base");
        if (pair.rank < 1 || pair.rank > options.max_rank)
            return refuse(
                pair, "has rank " + std::to_string(pair.rank) + ", the limit is " + std::to_string(options.max_rank));
        const auto rank = static_cast<std::size_t>(pair.rank);
        if (pair.a.size() != rank * static_cast<std::size_t>(shape.in_features(pair.projection)) ||
            pair.b.size() != rank * static_cast<std::size_t>(shape.out_features(pair.projection)))
            return refuse(pair, "has another base's shape");
        if (seen[place(pair.layer, pair.projection)]) return refuse(pair, "is there twice");
        seen[place(pair.layer, pair.projection)] = true;
    }
    return {};
}

std::optional<std::vector<Fragment>> ModuleSlots::State::take(const Module& module) {
    std::vector<Fragment> fragments(static_cast<std::size_t>(shape.layer_count()) * kProjections);
    for (const LowRankPair& pair : module.pairs) {
        const std::uint64_t a = a_bytes(shape.in_features(pair.projection), pair.rank, options.dtype);
        const std::uint64_t b = b_bytes(shape.out_features(pair.projection), pair.rank, options.dtype);
        const auto offset = arena.take(a + b);
        if (!offset) {
            give(fragments);
            return std::nullopt;
        }
        fragments[place(pair.layer, pair.projection)] = {*offset, *offset + a, pair.rank, pair.scale};
    }
    return fragments;
}

void ModuleSlots::State::give(const std::vector<Fragment>& fragments) {
    for (std::size_t at = 0; at < fragments.size(); ++at) {
        const Fragment& fragment = fragments[at];
        if (fragment.rank == 0) continue;
        const auto projection = static_cast<Projection>(at % kProjections);
        arena.give(fragment.a_offset, a_bytes(shape.in_features(projection), fragment.rank, options.dtype) +
                                          b_bytes(shape.out_features(projection), fragment.rank, options.dtype));
    }
}

void ModuleSlots::State::fill(const LowRankPair& pair, const Fragment& fragment) {
    const int out = shape.out_features(pair.projection);
    if (kernels) {
        auto* bytes = memory.data_ptr<std::uint8_t>();
        if (options.dtype == torch::kBFloat16) {
            to_bf16_array(pair.a.data(), pair.a.size(), reinterpret_cast<std::uint16_t*>(bytes + fragment.a_offset));
            pack_lora_b(pair.b.data(), out, pair.rank, reinterpret_cast<std::uint16_t*>(bytes + fragment.b_offset));
        } else {
            std::copy(pair.a.begin(), pair.a.end(), reinterpret_cast<float*>(bytes + fragment.a_offset));
            pack_lora_b(pair.b.data(), out, pair.rank, reinterpret_cast<float*>(bytes + fragment.b_offset));
        }
        return;
    }
    const auto host = [](const std::vector<float>& values, std::int64_t rows) {
        // from_blob wants a pointer to non-const; it is only read.
        return torch::from_blob(const_cast<float*>(values.data()),
                                {rows, static_cast<std::int64_t>(values.size()) / rows});
    };
    matrix_a(fragment, shape.in_features(pair.projection)).copy_(host(pair.a, pair.rank));
    matrix_b(fragment, out).copy_(host(pair.b, out).t());
}

torch::Tensor ModuleSlots::State::view(std::uint64_t offset, std::int64_t rows, std::int64_t columns) const {
    const auto bytes = static_cast<std::int64_t>(element_bytes(options.dtype)) * rows * columns;
    return memory.narrow(0, static_cast<std::int64_t>(offset), bytes).view(options.dtype).view({rows, columns});
}

// [rank, in]
torch::Tensor ModuleSlots::State::matrix_a(const Fragment& fragment, int in) const {
    return view(fragment.a_offset, fragment.rank, in);
}

// [rank, out]; a copy when B lies in panels
torch::Tensor ModuleSlots::State::matrix_b(const Fragment& fragment, int out) const {
    if (!kernels) return view(fragment.b_offset, fragment.rank, out);
    const std::int64_t panels = (out + kLoraPanelOutputs - 1) / kLoraPanelOutputs;
    return view(fragment.b_offset, panels * fragment.rank, kLoraPanelOutputs)
        .view({panels, fragment.rank, kLoraPanelOutputs})
        .permute({1, 0, 2})
        .reshape({fragment.rank, panels * kLoraPanelOutputs})
        .narrow(1, 0, out);
}

ModuleSlots::ModuleSlots(const ModelShape& shape, const Options& options, torch::Device device)
    : state_(std::make_unique<State>(shape, options, device)) {
    TORCH_CHECK(options.dtype == torch::kFloat32 || options.dtype == torch::kBFloat16,
                "slots hold float32 or bfloat16");
}

ModuleSlots::~ModuleSlots() = default;

std::uint64_t ModuleSlots::bytes_needed(const Module& module, torch::Dtype dtype) {
    std::uint64_t bytes = 0;
    for (const LowRankPair& pair : module.pairs) {
        const auto rank = static_cast<std::size_t>(std::max(pair.rank, 1));
        bytes += a_bytes(static_cast<int>(pair.a.size() / rank), pair.rank, dtype) +
                 b_bytes(static_cast<int>(pair.b.size() / rank), pair.rank, dtype);
    }
    return bytes;
}

Result<SlotId> ModuleSlots::install(const ModulePtr& module) {
    State& state = *state_;
    if (auto good = state.check(*module); !good) return good.error();
    auto fragments = state.take(*module);
    if (!fragments)
        return make_error(Errc::no_room, "module " + in_quotes(module->id.name) + " needs " +
                                             std::to_string(bytes_needed(*module, state.options.dtype)) +
                                             " slot bytes, " + std::to_string(capacity_bytes() - used_bytes()) +
                                             " of " + std::to_string(capacity_bytes()) + " are free");
    const torch::NoGradGuard no_grad;
    const auto fill = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const LowRankPair& pair = module->pairs[static_cast<std::size_t>(i)];
            state.fill(pair, (*fragments)[place(pair.layer, pair.projection)]);
        }
    };
    const auto pairs = static_cast<std::int64_t>(module->pairs.size());
    if (state.kernels) {
        at::parallel_for(0, pairs, 4, fill);
    } else {
        fill(0, pairs);
    }
    const auto empty =
        std::find_if(state.slots.begin(), state.slots.end(), [](const Slot& slot) { return !slot.module; });
    const auto index = static_cast<std::size_t>(empty - state.slots.begin());
    if (empty == state.slots.end()) state.slots.emplace_back();
    state.slots[index] = {module, *std::move(fragments)};
    return SlotId{static_cast<std::int32_t>(index)};
}

void ModuleSlots::remove(SlotId slot) {
    if (module(slot) == nullptr) return;
    Slot& gone = state_->slots[static_cast<std::size_t>(value_of(slot))];
    state_->give(gone.fragments);
    gone = {};
}

const Module* ModuleSlots::module(SlotId slot) const {
    const auto index = static_cast<std::size_t>(value_of(slot));
    return value_of(slot) >= 0 && index < state_->slots.size() ? state_->slots[index].module.get() : nullptr;
}

std::uint64_t ModuleSlots::used_bytes() const { return state_->arena.used(); }
std::uint64_t ModuleSlots::capacity_bytes() const { return state_->arena.capacity(); }

std::shared_ptr<const SlotPlan> ModuleSlots::plan(const Batch& batch) const {
    auto plan = std::make_shared<SlotPlan>();
    plan->touched.resize(static_cast<std::size_t>(state_->shape.layer_count()) * kProjections);
    for (auto& groups : group_by_slot(batch)) {
        auto& level = plan->levels.emplace_back();
        for (SlotGroup& group : groups) {
            TORCH_CHECK(module(group.slot) != nullptr, "a batch names an empty slot");
            const auto& fragments = state_->slots[static_cast<std::size_t>(value_of(group.slot))].fragments;
            for (std::size_t at = 0; at < fragments.size(); ++at)
                if (fragments[at].rank > 0) plan->touched[at] = true;
            level.push_back({std::move(group), {}, {}});
            if (!state_->kernels) state_->put_on_device(level.back());
        }
    }
    return plan;
}

bool ModuleSlots::touches(int layer, Projection projection, const SlotPlan& plan) const {
    return plan.touched[place(layer, projection)];
}

torch::Tensor ModuleSlots::apply(int layer, Projection projection, const torch::Tensor& x, torch::Tensor y,
                                 const SlotPlan& plan) const {
    if (!touches(layer, projection, plan)) return y;
    const auto plain_rows = [](const torch::Tensor& t) {
        return t.scalar_type() == torch::kFloat32 && t.stride(1) == 1;
    };
    if (state_->kernels && !at::GradMode::is_enabled() && plain_rows(x) && plain_rows(y)) {
        state_->apply_kernels(layer, projection, x, y, plan);
        return y;
    }
    return state_->apply_torch(layer, projection, x, y, plan);
}

void ModuleSlots::State::apply_kernels(int layer, Projection projection, const torch::Tensor& x, torch::Tensor& y,
                                       const SlotPlan& plan) const {
    const auto* bytes = memory.data_ptr<std::uint8_t>();
    const auto run = options.dtype == torch::kBFloat16 ? lora_kernels().apply_bf16 : lora_kernels().apply_f32;
    LoraCall call;
    call.x = x.data_ptr<float>();
    call.x_stride = x.stride(0);
    call.y = y.data_ptr<float>();
    call.y_stride = y.stride(0);
    call.in = shape.in_features(projection);
    call.out = shape.out_features(projection);
    std::vector<LoraCall> tasks;
    for (const auto& level : plan.levels) {
        tasks.clear();
        std::int64_t work = 0;
        for (const SlotPlan::Group& group : level) {
            const Fragment& part = fragment(group.slot, layer, projection);
            if (part.rank == 0) continue;
            call.rank = part.rank;
            call.scale = part.scale;
            call.a = bytes + part.a_offset;
            call.b = bytes + part.b_offset;
            const int rows = static_cast<int>(group.rows.size());
            for (int first = 0; first < rows; first += kTaskRows) {
                call.rows = group.rows.data() + first;
                call.weights = group.weights.data() + first;
                call.count = std::min(kTaskRows, rows - first);
                tasks.push_back(call);
            }
            work += static_cast<std::int64_t>(rows) * part.rank * (call.in + call.out);
        }
        const auto share = [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> scratch(static_cast<std::size_t>(kTaskRows) *
                                       static_cast<std::size_t>(options.max_rank));
            for (std::int64_t i = begin; i < end; ++i) run(tasks[static_cast<std::size_t>(i)], scratch.data());
        };
        const auto count = static_cast<std::int64_t>(tasks.size());
        // Every row is in one task, so threads never meet in y.
        if (work < kParallelWork) {
            share(0, count);
        } else {
            at::parallel_for(0, count, 1, share);
        }
    }
}

// Functional: y stays as it is. Sums in float32 whatever y's dtype; rows without modules come back bit for bit, since a
// bfloat16 survives the way through float32.
torch::Tensor ModuleSlots::State::apply_torch(int layer, Projection projection, const torch::Tensor& x,
                                              const torch::Tensor& y, const SlotPlan& plan) const {
    torch::Tensor sum = y.to(torch::kFloat32);
    for (const auto& level : plan.levels) {
        for (SlotPlan::Group group : level) {
            const Fragment& part = fragment(group.slot, layer, projection);
            if (part.rank == 0) continue;
            if (!group.index.defined()) put_on_device(group);  // gradients on a machine that serves with kernels
            const torch::Tensor a = matrix_a(part, shape.in_features(projection)).to(torch::kFloat32);
            const torch::Tensor b = matrix_b(part, shape.out_features(projection)).to(torch::kFloat32);
            const torch::Tensor rows = x.index_select(0, group.index).to(torch::kFloat32);
            const torch::Tensor delta = torch::matmul(torch::matmul(rows, a.t()), b) * (group.column * part.scale);
            sum = sum.index_add(0, group.index, delta);
        }
    }
    return sum.to(y.scalar_type());
}

}  // namespace attune
