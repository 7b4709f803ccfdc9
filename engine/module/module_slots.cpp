#include "engine/module/module_slots.hpp"

#include "engine/files/quote.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/module/module_slots_impl.hpp"
#include "engine/weights/zero_pages.hpp"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <utility>

namespace attune {

ModuleSlots::Impl::Impl(const ModelShape& model_shape, const Options& slot_options, torch::Device on)
    : shape(model_shape),
      options(slot_options),
      device(on),
      kernels(on.is_cpu() && !slot_options.torch_kernels),
      arena(slot_options.device_bytes) {
    // A plain tensor, so that training may read it: inference tensors are closed to autograd.
    const c10::InferenceMode guard(false);
    memory = zero_pages({static_cast<std::int64_t>(arena.capacity())}, torch::kUInt8, device, PageSize::huge);
}

ModuleSlots::ModuleSlots(const ModelShape& shape, const Options& options, torch::Device device)
    : impl_(std::make_unique<Impl>(shape, options, device)) {
    TORCH_CHECK(options.dtype == torch::kFloat32 || options.dtype == torch::kBFloat16,
                "slots hold float32 or bfloat16");
}

ModuleSlots::~ModuleSlots() = default;

// ---- coming and going

bool ModuleSlots::Impl::take(SlotContent& content) {
    for (std::size_t i = 0; i < content.arrays().size(); ++i) {
        SlotArray& array = content.arrays()[i];
        const auto offset = arena.take(array.bytes(element_bytes()));
        if (!offset) {
            while (i-- > 0) arena.give(content.arrays()[i].offset, content.arrays()[i].bytes(element_bytes()));
            return false;
        }
        array.offset = *offset;
    }
    return true;
}

void ModuleSlots::Impl::give(const SlotContent& content) {
    for (const SlotArray& array : content.arrays()) arena.give(array.offset, array.bytes(element_bytes()));
}

void ModuleSlots::Impl::fill(const SlotArray& array) {
    const bool ids = array.form == ArrayForm::ids;
    if (kernels) {
        std::uint8_t* to = memory.data_ptr<std::uint8_t>() + array.offset;
        const auto store = [&](auto* elements) {
            if (array.form == ArrayForm::panels) {
                pack_lora_b(array.values.data(), array.rows, array.columns, elements);
            } else if constexpr (sizeof *elements == sizeof(float)) {
                std::copy(array.values.begin(), array.values.end(), elements);
            } else {
                to_bf16_array(array.values.data(), array.values.size(), elements);
            }
        };
        if (ids) {
            std::copy(array.token_ids.begin(), array.token_ids.end(), reinterpret_cast<TokenId*>(to));
        } else if (array.form == ArrayForm::floats || options.dtype == torch::kFloat32) {
            store(reinterpret_cast<float*>(to));
        } else {
            store(reinterpret_cast<std::uint16_t*>(to));
        }
        return;
    }
    // from_blob wants a pointer to non-const; it is only read.
    const auto host = ids ? torch::from_blob(const_cast<TokenId*>(array.token_ids.data()), {array.rows}, torch::kInt32)
                          : torch::from_blob(const_cast<float*>(array.values.data()), {array.rows, array.columns});
    const auto dtype = ids ? torch::kInt32 : array.form == ArrayForm::floats ? torch::kFloat32 : options.dtype;
    const auto bytes = host.numel() * static_cast<std::int64_t>(c10::elementSize(dtype));
    const auto place = memory.narrow(0, static_cast<std::int64_t>(array.offset), bytes).view(dtype);
    place.copy_((array.form == ArrayForm::panels ? host.t() : host).reshape({-1}));
}

void ModuleSlots::Impl::fill_some(std::span<const SlotArray> arrays) {
    const torch::NoGradGuard no_grad;
    const auto some = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) fill(arrays[static_cast<std::size_t>(i)]);
    };
    const auto count = static_cast<std::int64_t>(arrays.size());
    if (kernels) {
        parallel_for(count, 8, some);
    } else {
        some(0, count);
    }
}

std::uint64_t ModuleSlots::bytes_needed(const Module& module, torch::Dtype dtype) {
    return SlotContent(module).bytes(c10::elementSize(dtype));
}

Result<SlotId> ModuleSlots::install(const ModulePtr& module) {
    if (auto begun = begin_install(module); !begun) return begun.error();
    return *go_on_installing(nullptr);
}

Result<void> ModuleSlots::begin_install(const ModulePtr& module) {
    Impl& impl = *impl_;
    TORCH_CHECK(!impl.filling, "modules are installed one at a time");
    if (auto good = impl.check(*module); !good) return good.error();
    const ModulePtr stored = impl.stored_form(module);
    auto content = std::make_unique<SlotContent>(*stored);
    if (!impl.take(*content))
        return make_error(Errc::no_room, "module " + in_quotes(module->id.name) + " needs " +
                                             std::to_string(content->bytes(impl.element_bytes())) + " slot bytes, " +
                                             std::to_string(capacity_bytes() - used_bytes()) + " of " +
                                             std::to_string(capacity_bytes()) + " are free");
    impl.filling = Impl::Filling{{module, std::move(content), stored}};
    return {};
}

std::optional<SlotId> ModuleSlots::go_on_installing(const std::function<bool()>& enough) {
    constexpr std::size_t kPieceBytes = 1u << 20;
    Impl& impl = *impl_;
    Impl::Filling& filling = *impl.filling;
    const std::span<const SlotArray> arrays = filling.slot.content->arrays();
    while (filling.next < arrays.size()) {
        std::size_t end = enough ? filling.next : arrays.size();
        for (std::size_t bytes = 0; end < arrays.size() && bytes < kPieceBytes; ++end)
            bytes += arrays[end].bytes(impl.element_bytes());
        impl.fill_some(arrays.subspan(filling.next, end - filling.next));
        filling.next = end;
        if (end < arrays.size() && enough()) return std::nullopt;
    }
    const auto empty =
        std::find_if(impl.slots.begin(), impl.slots.end(), [](const Impl::Slot& slot) { return !slot.module; });
    const auto index = static_cast<std::size_t>(empty - impl.slots.begin());
    if (empty == impl.slots.end()) impl.slots.emplace_back();
    impl.slots[index] = std::move(filling.slot);
    impl.filling.reset();
    impl.changed();
    return SlotId{static_cast<std::int32_t>(index)};
}

void ModuleSlots::give_up_installing() {
    if (!impl_->filling) return;
    impl_->give(*impl_->filling->slot.content);
    impl_->filling.reset();
}

void ModuleSlots::remove(SlotId slot) {
    if (module(slot) == nullptr) return;
    Impl::Slot& gone = impl_->slots[static_cast<std::size_t>(value_of(slot))];
    impl_->give(*gone.content);
    gone = {};
    impl_->changed();
}

const Module* ModuleSlots::module(SlotId slot) const {
    const auto index = static_cast<std::size_t>(value_of(slot));
    return value_of(slot) >= 0 && index < impl_->slots.size() ? impl_->slots[index].module.get() : nullptr;
}

ModulePtr ModuleSlots::share(SlotId slot) const {
    return module(slot) == nullptr ? nullptr : impl_->slots[static_cast<std::size_t>(value_of(slot))].module;
}

void ModuleSlots::set_merged(bool merged, bool with_head) {
    impl_->merged_layers = merged;
    impl_->merged_head = merged && with_head;
    impl_->changed();
}

std::uint64_t ModuleSlots::used_bytes() const { return impl_->arena.used(); }
std::uint64_t ModuleSlots::capacity_bytes() const { return impl_->arena.capacity(); }

// ---- plans

SlotPlan::Levels ModuleSlots::Impl::levels_of(std::span<const RowSegment> segments) const {
    SlotPlan::Levels levels;
    for (auto& groups : group_by_slot(segments)) {
        auto& level = levels.emplace_back();
        for (SlotGroup& group : groups) {
            const SlotContent* content = slots[static_cast<std::size_t>(value_of(group.slot))].content.get();
            level.push_back({std::move(group), content, {}, {}});
            if (!kernels) put_on_device(level.back());
        }
    }
    return levels;
}

std::shared_ptr<const SlotPlan> ModuleSlots::Impl::plan(std::vector<RowSegment> segments) const {
    auto plan = std::make_shared<SlotPlan>();
    const std::size_t sites = SlotContent::site(shape.layer_count(), Projection{});
    plan->pairs.resize(sites);
    plan->terms.resize(sites);
    plan->inputs.resize(sites);
    plan->norms.resize(SlotContent::norm_site(shape.layer_count(), NormSite{}));
    plan->states.resize(static_cast<std::size_t>(shape.layer_count()));
    plan->merged_layers = merged_layers;
    plan->merged_head = merged_head;
    plan->levels = levels_of(segments);
    for (const auto& level : plan->levels)
        for (const SlotPlan::Group& group : level) {
            const SlotContent& content = *group.content;
            for (std::size_t site = 0; site < sites; ++site) {
                if (const SlotContent::Output* term = content.output(site))
                    plan->terms[site] = plan->terms[site] || !plan->is_merged(site) ||
                                        term->add != SlotContent::kNone || term->gain_on_bias;
                if (plan->is_merged(site)) continue;
                if (content.pair(site) != nullptr) plan->pairs[site] = true;
                if (content.input_gain(site) != SlotContent::kNone) plan->terms[site] = plan->inputs[site] = true;
            }
            for (std::size_t site = 0; site < plan->norms.size(); ++site)
                if (content.norm_delta(site) != SlotContent::kNone) plan->norms[site] = true;
            for (int layer = 0; layer < shape.layer_count(); ++layer)
                if (content.state(layer) != nullptr) plan->states[static_cast<std::size_t>(layer)] = true;
            if (content.embeds()) plan->embedding = true;
            if (content.head_rows != SlotContent::kNone) plan->head_rows = true;
        }
    for (const RowSegment& segment : segments) {
        PlannedSegment& planned = plan->segments.emplace_back();
        planned.first = segment.first;
        planned.rows = segment.rows;
        planned.combine = segment.slots.size() > 1 ? segment.combine : Combine::sequence;
        for (const SlotWeight& slot : segment.slots)
            planned.modules.push_back(
                {slots[static_cast<std::size_t>(value_of(slot.slot))].content.get(), slot.weight});
    }
    const auto combined = [](const RowSegment& segment) {
        return segment.slots.size() > 1 && segment.combine != Combine::sequence;
    };
    if (std::erase_if(segments, combined) > 0) plan->sequence_levels = levels_of(segments);
    if (kernels) list_sites(*plan);
    return plan;
}

void ModuleSlots::Impl::list_sites(SlotPlan& plan) const {
    for (const auto& level : plan.levels) {
        auto& pairs = plan.level_pairs.emplace_back();
        for (std::size_t site = 0; site < plan.pairs.size(); ++site) {
            pairs.next_site();
            if (!plan.pairs[site]) continue;
            for (std::size_t group = 0; group < level.size(); ++group) {
                const SlotContent& content = *level[group].content;
                if (const SlotContent::Pair* pair = content.pair(site))
                    pairs.add({group, pair->rank, pair->scale, bytes(content, pair->a), bytes(content, pair->b)});
            }
        }
    }
    for (std::size_t site = 0; site < plan.terms.size(); ++site) {
        plan.site_terms.next_site();
        if (!plan.terms[site]) continue;
        for (std::size_t segment = 0; segment < plan.segments.size(); ++segment)
            for (const auto& [content, weight] : plan.segments[segment].modules) {
                const float* input = floats(*content, content->input_gain(site));
                const SlotContent::Output* output = content->output(site);
                if (output == nullptr && input == nullptr) continue;
                PlannedTerm term{segment, weight};
                term.input = input;
                if (output != nullptr) {
                    term.gain = floats(*content, output->gain);
                    term.add = floats(*content, output->add);
                    term.gain_on_bias = output->gain_on_bias;
                }
                plan.site_terms.add(term);
            }
    }
}

std::shared_ptr<const SlotPlan> ModuleSlots::plan(const Batch& batch) const {
    Impl::KeptPlan& kept = impl_->whole_step;
    if (kept.fits(batch, {})) return kept.plan;
    std::vector<RowSegment> segments = segments_of(batch);
    for (const RowSegment& segment : segments)
        for (const SlotWeight& slot : segment.slots)
            TORCH_CHECK(module(slot.slot) != nullptr, "a batch names an empty slot");
    kept.keep(batch, {}, impl_->plan(std::move(segments)));
    return kept.plan;
}

std::shared_ptr<const SlotPlan> ModuleSlots::plan(const Batch& batch, std::span<const std::int32_t> rows) const {
    Impl::KeptPlan& kept = impl_->some_rows;
    if (!kept.fits(batch, rows)) kept.keep(batch, rows, impl_->plan(segments_of(batch, rows)));
    return kept.plan;
}

const PrefixSegment* ModuleSlots::prefix(const Batch& batch, int row) const {
    for (const RowSegment& segment : segments_of(batch)) {
        if (row < segment.first || row >= segment.first + segment.rows) continue;
        for (const SlotWeight& slot : segment.slots)
            if (const Module* found = module(slot.slot); found != nullptr && found->prefix) return &*found->prefix;
    }
    return nullptr;
}

// ---- what acts where

bool ModuleSlots::touches(int layer, Projection projection, const SlotPlan& plan) const {
    const std::size_t site = SlotContent::site(layer, projection);
    return plan.pairs[site] || plan.terms[site] || (projection == Projection::head && plan.head_rows);
}

bool ModuleSlots::touches_head(const Batch& batch) const {
    const std::size_t head = SlotContent::site(0, Projection::head);
    return std::any_of(batch.segment_slots.begin(), batch.segment_slots.end(), [&](const SlotWeight& slot) {
        const SlotContent& content = *impl_->slots[static_cast<std::size_t>(value_of(slot.slot))].content;
        const bool changes = content.pair(head) != nullptr || content.input_gain(head) != SlotContent::kNone;
        return (changes && !impl_->merged_head) || content.output(head) != nullptr ||
               content.head_rows != SlotContent::kNone;
    });
}

bool ModuleSlots::touches_embedding(const SlotPlan& plan) const { return plan.embedding; }

bool ModuleSlots::touches_output(int layer, const SlotPlan& plan) const {
    return plan.states[static_cast<std::size_t>(layer)];
}

bool ModuleSlots::Impl::writes(const torch::Tensor& t) const {
    return kernels && !at::GradMode::is_enabled() && t.scalar_type() == torch::kFloat32 && t.stride(-1) == 1;
}

void ModuleSlots::apply(int layer, std::span<const Product> products, const torch::Tensor& x,
                        const SlotPlan& plan) const {
    const bool in_place =
        impl_->writes(x) && std::all_of(products.begin(), products.end(),
                                        [&](const Product& product) { return impl_->writes(*product.y); });
    // Terms first: they read the base's product as it is.
    for (const auto& [projection, y, base] : products) {
        const std::size_t site = SlotContent::site(layer, projection);
        if (!plan.terms[site]) continue;
        if (plan.is_merged(site)) {
            *y = impl_->terms_merged(site, *y, plan, base, in_place);
        } else if (in_place) {
            impl_->terms_kernels(site, x, *y, plan, base);
        } else {
            *y = impl_->terms_torch(site, x, *y, plan, base);
        }
    }
    if (in_place) impl_->pairs_kernels(layer, products, x, plan);
    for (const auto& [projection, y, base] : products) {
        const std::size_t site = SlotContent::site(layer, projection);
        if (!in_place && plan.pairs[site]) *y = impl_->pairs_torch(site, x, *y, plan);
        if (projection != Projection::head || !plan.head_rows) continue;
        if (in_place) {
            impl_->head_rows_kernels(x, *y, plan);
        } else {
            *y = impl_->head_rows_torch(x, *y, plan);
        }
    }
}

torch::Tensor ModuleSlots::embed(std::span<const TokenId> tokens, torch::Tensor x, const SlotPlan& plan) const {
    if (!plan.embedding) return x;
    if (!impl_->writes(x)) return impl_->embedding_torch(tokens, x, plan);
    impl_->embedding_kernels(tokens, x, plan);
    return x;
}

void ModuleSlots::apply_states(int layer, torch::Tensor& x, torch::Tensor& delta, const SlotPlan& plan) const {
    if (!touches_output(layer, plan)) return;
    if (impl_->writes(x) && impl_->writes(delta)) {
        impl_->states_kernels(layer, x, delta, plan);
        return;
    }
    x = impl_->states_torch(layer, x + delta, plan);
    delta = torch::Tensor();
}

}  // namespace attune
