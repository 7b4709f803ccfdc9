// State modules on the output of a decoder layer: h + weight * scale * f(h), in float32. One after the other in the
// request's order, all from the same h (parallel), or as one state of the weighted mean of their matrices
// (interpolate).

#include "engine/kernels/activation.hpp"
#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <numbers>
#include <vector>

namespace attune {
namespace {

using State = SlotContent::State;

/// y[row] += weight * scale * v for the rows of a call.
void add_vector(const LoraCall& call, const float* v) {
    if (v == nullptr) return;
    for (int i = 0; i < call.count; ++i) {
        float* y = call.y + call.rows[i] * call.y_stride;
        const float factor = call.weights[i] * call.scale;
        for (int k = 0; k < call.out; ++k) y[k] += factor * v[k];
    }
}

struct StateTask {
    LoraCall call;
    const SlotContent* content = nullptr;
    const State* state = nullptr;
};

torch::Tensor act(Activation activation, const torch::Tensor& t) {
    switch (activation) {
        case Activation::identity:
            return t;
        case Activation::tanh:
            return torch::tanh(t);
        case Activation::relu:
            return torch::relu(t);
        case Activation::silu:
            return torch::silu(t);
        case Activation::gelu:
            return t * 0.5 * (1 + torch::erf(t * (1 / std::numbers::sqrt2)));
    }
    return t;
}

/// The modules of a segment that have a state at this layer.
using ModuleStates = std::vector<std::pair<const PlannedModule*, const State*>>;

void list_states(const PlannedSegment& segment, int layer, ModuleStates& states) {
    states.clear();
    for (const PlannedModule& module : segment.modules)
        if (const State* state = module.content->state(layer)) states.emplace_back(&module, state);
}

/// Admission lets only states of one kind, width, activation and scale be interpolated.
void check_alike(const State& a, const State& b) {
    TORCH_CHECK(a.kind == b.kind && a.width == b.width && a.activation == b.activation && a.scale == b.scale,
                "interpolated states differ in kind or shape");
}

/// The loops of one layer's states.
class StateLoops {
public:
    StateLoops(const ModuleSlots::Impl& slots, const LoraCall& call) : slots_(slots), call_(call) {
        const bool bf16 = slots.options.dtype == torch::kBFloat16;
        shrink_ = bf16 ? lora_kernels().shrink_bf16 : lora_kernels().shrink_f32;
        expand_ = bf16 ? lora_kernels().expand_bf16 : lora_kernels().expand_f32;
    }

    /// A call for some rows of one state: x, y and rows as in the step.
    LoraCall call_of(const SlotContent& content, const State& state, const std::int32_t* rows, const float* weights,
                     int count) const {
        LoraCall call = call_;
        call.rows = rows;
        call.weights = weights;
        call.count = count;
        call.rank = state.width;
        call.scale = state.scale;
        call.a = slots_.bytes(content, state.down);
        call.b = slots_.bytes(content, state.up);
        return call;
    }

    /// t = D x + c: [count, width]
    void reduce(const LoraCall& call, const SlotContent& content, const State& state, float* t) const {
        shrink_(call, t);
        const float* bias = slots_.floats(content, state.down_bias);
        if (bias == nullptr) return;
        for (int i = 0; i < call.count; ++i)
            for (int k = 0; k < call.rank; ++k) t[i * call.rank + k] += bias[k];
    }

    /// y += weight * scale * (U t + d), or + weight * scale * v.
    void inject(const LoraCall& call, const SlotContent& content, const State& state, const float* t) const {
        if (state.kind == StateKind::vector) return add_vector(call, slots_.floats(content, state.vector));
        expand_(call, t);
        add_vector(call, slots_.floats(content, state.up_bias));
    }

    /// y += weight * scale * f(x)
    void run(const LoraCall& call, const SlotContent& content, const State& state) const {
        const std::size_t count = static_cast<std::size_t>(call.count) * static_cast<std::size_t>(state.width);
        float* t = slots_.scratch(count);
        if (state.kind != StateKind::vector) {
            reduce(call, content, state, t);
            activate(state.activation, t, count);
        }
        inject(call, content, state, t);
    }

    /// Rows of one segment whose states are combined otherwise than one after the other.
    void run_combined(const PlannedSegment& segment, int layer, int first, int count) const {
        std::int32_t rows[kTaskRows];
        std::int32_t own[kTaskRows];  // the same rows in what is copied or summed for this task
        float weights[kTaskRows];
        for (int i = 0; i < count; ++i) {
            rows[i] = first + i;
            own[i] = i;
        }
        static thread_local ModuleStates states;
        list_states(segment, layer, states);
        const auto weigh = [&](float weight) { std::fill_n(weights, count, weight); };
        if (segment.combine == Combine::parallel) {
            // All of them read h as it came.
            const auto hidden = static_cast<std::size_t>(call_.in);
            float* before = slots_.scratch(static_cast<std::size_t>(count) * hidden, 1);
            for (int i = 0; i < count; ++i) {
                const float* h = call_.y + rows[i] * call_.y_stride;
                std::copy(h, h + hidden, before + static_cast<std::size_t>(i) * hidden);
            }
            for (const auto& [module, state] : states) {
                weigh(module->weight);
                LoraCall call = call_of(*module->content, *state, own, weights, count);
                call.x = before;
                call.x_stride = call_.in;
                call.y = call_.y + first * call_.y_stride;
                run(call, *module->content, *state);
            }
            return;
        }
        const State& alike = *states.front().second;
        const auto size = static_cast<std::size_t>(count) * static_cast<std::size_t>(alike.width);
        float* sum = slots_.scratch(size, 1);
        std::fill_n(sum, size, 0.0F);
        for (const auto& [module, state] : states) {
            check_alike(alike, *state);
            if (state->kind == StateKind::vector) continue;
            float* t = slots_.scratch(size);
            reduce(call_of(*module->content, *state, rows, weights, count), *module->content, *state, t);
            for (std::size_t k = 0; k < size; ++k) sum[k] += module->weight * t[k];
        }
        activate(alike.activation, sum, size);
        for (const auto& [module, state] : states) {
            weigh(module->weight);
            inject(call_of(*module->content, *state, rows, weights, count), *module->content, *state, sum);
        }
    }

private:
    const ModuleSlots::Impl& slots_;
    LoraCall call_;
    void (*shrink_)(const LoraCall&, float*);
    void (*expand_)(const LoraCall&, const float*);
};

}  // namespace

void ModuleSlots::Impl::states_kernels(int layer, torch::Tensor& x, torch::Tensor& delta, const SlotPlan& plan) const {
    const int hidden = shape.hidden_size;
    const auto acts = [&](const SlotContent& content) { return content.state(layer) != nullptr; };
    // The sum is made here for touched rows, so that states see h; the next norm adds the zeros that are left.
    for (const PlannedSegment& segment : plan.segments) {
        if (!segment.any(acts)) continue;
        for (std::int64_t row = segment.first; row < segment.first + segment.rows; ++row) {
            float* h = x.data_ptr<float>() + row * x.stride(0);
            float* add = delta.data_ptr<float>() + row * delta.stride(0);
            for (int k = 0; k < hidden; ++k) h[k] += add[k];
            std::fill_n(add, hidden, 0.0F);
        }
    }
    LoraCall in_place;
    in_place.x = in_place.y = x.data_ptr<float>();
    in_place.x_stride = in_place.y_stride = x.stride(0);
    in_place.in = in_place.out = hidden;
    const StateLoops loops(*this, in_place);

    static thread_local std::vector<StateTask> buffer;
    std::vector<StateTask>& tasks = buffer;  // this thread's, whoever runs them
    for (const auto& level : plan.state_levels()) {
        tasks.clear();
        std::int64_t work = 0;
        for (const SlotPlan::Group& group : level) {
            const State* state = group.content->state(layer);
            if (state == nullptr) continue;
            const int rows = static_cast<int>(group.rows.size());
            for (int first = 0; first < rows; first += kTaskRows)
                tasks.push_back({loops.call_of(*group.content, *state, group.rows.data() + first,
                                               group.weights.data() + first, std::min(kTaskRows, rows - first)),
                                 group.content, state});
            work += static_cast<std::int64_t>(rows) * hidden * (2 * state->width + 1);
        }
        run_tasks(static_cast<std::int64_t>(tasks.size()), work, [&](std::int64_t i) {
            const StateTask& task = tasks[static_cast<std::size_t>(i)];
            loops.run(task.call, *task.content, *task.state);
        });
    }
    for (const PlannedSegment& segment : plan.segments) {
        if (segment.combine == Combine::sequence || !segment.any(acts)) continue;
        const int count = (segment.rows + kTaskRows - 1) / kTaskRows;
        run_tasks(count, static_cast<std::int64_t>(segment.rows) * hidden * hidden, [&](std::int64_t i) {
            const int first = static_cast<int>(i) * kTaskRows;
            loops.run_combined(segment, layer, segment.first + first, std::min(kTaskRows, segment.rows - first));
        });
    }
}

torch::Tensor ModuleSlots::Impl::states_torch(int layer, const torch::Tensor& x, const SlotPlan& plan) const {
    const auto acts = [&](const SlotContent& content) { return content.state(layer) != nullptr; };
    const auto reduce = [&](const SlotContent& content, const State& state, const torch::Tensor& h) {
        const torch::Tensor t = torch::matmul(h, values(content, state.down).t());
        return state.down_bias == SlotContent::kNone ? t : t + values(content, state.down_bias);
    };
    const auto inject = [&](const SlotContent& content, const State& state, const torch::Tensor& t) {
        if (state.kind == StateKind::vector) return values(content, state.vector);
        const torch::Tensor u = torch::matmul(t, values(content, state.up));
        return state.up_bias == SlotContent::kNone ? u : u + values(content, state.up_bias);
    };
    const auto piece = [&](const PlannedSegment& segment, const torch::Tensor& before) {
        ModuleStates states;
        list_states(segment, layer, states);
        torch::Tensor h = before;
        if (segment.combine == Combine::interpolate) {
            const State& alike = *states.front().second;
            torch::Tensor t;
            for (const auto& [module, state] : states) {
                check_alike(alike, *state);
                if (state->kind == StateKind::vector) continue;
                const torch::Tensor part = reduce(*module->content, *state, before) * module->weight;
                t = t.defined() ? t + part : part;
            }
            if (t.defined()) t = act(alike.activation, t);
            for (const auto& [module, state] : states)
                h = h + inject(*module->content, *state, t) * (module->weight * state->scale);
            return h;
        }
        for (const auto& [module, state] : states) {
            const torch::Tensor& read = segment.combine == Combine::parallel ? before : h;
            const torch::Tensor t = state->kind == StateKind::vector
                                        ? torch::Tensor()
                                        : act(state->activation, reduce(*module->content, *state, read));
            h = h + inject(*module->content, *state, t) * (module->weight * state->scale);
        }
        return h;
    };
    return by_segment(x, plan, acts, piece);
}

}  // namespace attune
