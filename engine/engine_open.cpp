// From words and files to an engine: devices, dtypes, threads and the size of the KV pool.

#include "attune/assert.hpp"
#include "engine/engine_impl.hpp"
#include "engine/free_memory.hpp"
#include "engine/kernels/instruction_set.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/kv/block_size.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace attune {
namespace {

Error unknown_word(const char* setting, const std::string& value, const char* allowed) {
    return make_error(Errc::invalid_argument, std::string(setting) + " is \"" + value + "\", it may be " + allowed,
                      setting);
}

Result<torch::Device> parse_device(const std::string& word) {
    if (word == "auto")
        return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
    if (word == "cpu") return torch::Device(torch::kCPU);
    const bool numbered = word.starts_with("cuda:") && word.size() > 5 && word.size() <= 8 &&
                          std::all_of(word.begin() + 5, word.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!numbered) return unknown_word("model.device", word, "auto, cpu or cuda:N");
    const int index = std::stoi(word.substr(5));
    if (index >= static_cast<int>(torch::cuda::device_count()))
        return make_error(Errc::invalid_argument,
                          "model.device is \"" + word + "\", this machine has " +
                              std::to_string(torch::cuda::device_count()) + " CUDA devices",
                          "model.device");
    return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

Result<torch::Dtype> parse_slot_dtype(const std::string& word) {
    if (word == "f32") return torch::kFloat32;
    if (word == "bf16") return torch::kBFloat16;
    return unknown_word("modules.slot_dtype", word, "f32 or bf16");
}

Result<ApplyWish> parse_apply(const std::string& word) {
    if (word == "batched") return ApplyWish::batched;
    if (word == "merged") return ApplyWish::merged;
    if (word == "auto") return ApplyWish::automatic;
    return unknown_word("scheduler.apply", word, "batched, merged or auto");
}

/// Our kernels have threads of their own; libtorch's then stay out of their way. The reference path has only those.
void set_threads(int threads, bool torch_kernels) {
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const int wanted = threads > 0 ? threads : cores;
    if (!torch_kernels) set_worker_threads(wanted);
    at::set_num_threads(torch_kernels ? wanted : 1);
    // May be set once per process and only before the first parallel work.
    static std::once_flag once;
    std::call_once(once, [] {
        try {
            at::set_num_interop_threads(1);
        } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch): somebody set it before; it decides nothing here
        }
    });
}

std::uint64_t free_bytes(torch::Device device) {
    if (device.is_cpu()) return free_memory_bytes();
    return at::accelerator::getMemoryInfo(device.index()).first;
}

/// Asked-for bytes, else room for max_sequences of a usual length and for one as long as the model allows, within a
/// quarter of what is free.
Result<int> choose_kv_blocks(const EngineOptions& options, const ModelShape& shape, const EngineLayout& layout,
                             int max_context) {
    const std::uint64_t block_bytes = KvCache::bytes_per_block(shape, layout.kv_dtype);
    std::uint64_t blocks = options.kv_bytes / block_bytes;
    if (options.kv_bytes == 0) {
        const auto usual = static_cast<std::uint64_t>(std::min(max_context, 2048));
        const std::uint64_t tokens = std::max<std::uint64_t>(static_cast<std::uint64_t>(options.max_sequences) * usual,
                                                             static_cast<std::uint64_t>(max_context));
        blocks = std::min((tokens + kBlockTokens - 1) / kBlockTokens, free_bytes(layout.device) / 4 / block_bytes);
    }
    if (blocks == 0)
        return make_error(Errc::no_room,
                          "model.kv_bytes is " + std::to_string(options.kv_bytes) + ", one block of " +
                              std::to_string(kBlockTokens) + " tokens takes " + std::to_string(block_bytes) + " bytes",
                          "model.kv_bytes");
    return static_cast<int>(std::min<std::uint64_t>(blocks, 1U << 30));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
    const bool torch_kernels = options.kernels == "torch";
    const auto instruction_set = parse_instruction_set(torch_kernels ? "auto" : options.kernels);
    if (!instruction_set)
        return unknown_word("model.kernels", options.kernels, "auto, torch, baseline, x86-64-v3 or x86-64-v4");
    if (!machine_runs(*instruction_set))
        return make_error(Errc::unsupported, "model.kernels is " + options.kernels + ", which this machine cannot run",
                          "model.kernels");
    const auto device = parse_device(options.device);
    if (!device) return device.error();
    const auto form = weight_form(options.dtype);
    if (!form) return unknown_word("model.dtype", options.dtype, "auto, f32, bf16, int8 or int4");
    const torch::Dtype dtype = form->first;
    if (options.activations != "f32" && options.activations != "bf16")
        return unknown_word("model.activations", options.activations, "f32 or bf16");
    const bool bf16_activations = options.activations == "bf16";
    const auto slot_dtype = parse_slot_dtype(options.slot_dtype);
    if (!slot_dtype) return slot_dtype.error();

    const auto apply = parse_apply(options.apply);
    if (!apply) return apply.error();
    if (options.restore_from != "file" && options.restore_from != "clone")
        return unknown_word("modules.restore_from", options.restore_from, "file or clone");

    limit_instruction_set(*instruction_set);
    set_threads(options.threads, torch_kernels);
    auto model = load_model(options.model, {.device = *device,
                                            .dtype = dtype,
                                            .torch_kernels = torch_kernels,
                                            .bits = form->second,
                                            .bf16_activations = bf16_activations});
    if (!model) return model.error();
    const bool quantised = (*model)->is_quantised();
    if (quantised && *apply == ApplyWish::merged)
        return make_error(Errc::unsupported,
                          "scheduler.apply is \"merged\", but modules are never merged into quantised weights: choose "
                          "batched, or model.dtype bf16",
                          "scheduler.apply");

    EngineLayout layout{.device = *device,
                        .kv_dtype = dtype,
                        .slot_dtype = *slot_dtype,
                        .kv_blocks = 0,
                        .torch_kernels = torch_kernels,
                        .bf16_activations = bf16_activations,
                        // What auto may always choose.
                        .apply = quantised ? ApplyWish::batched : *apply};
    const ModelShape& shape = (*model)->shape();
    const int max_context =
        options.max_context > 0 ? std::min(options.max_context, shape.max_context) : shape.max_context;
    const auto blocks = choose_kv_blocks(options, shape, layout, max_context);
    if (!blocks) return blocks.error();
    layout.kv_blocks = *blocks;
    return make_engine(*std::move(model), options, layout, std::move(tokenizer));
}

std::unique_ptr<Engine> make_engine(std::unique_ptr<Model> model, const EngineOptions& options,
                                    const EngineLayout& layout, std::shared_ptr<const Tokenizer> tokenizer) {
    return std::make_unique<EngineImpl>(std::move(model), options, layout, std::move(tokenizer));
}

EngineImpl::EngineImpl(std::unique_ptr<Model> model, const EngineOptions& options, const EngineLayout& layout,
                       std::shared_ptr<const Tokenizer> tokenizer)
    : options_(options),
      model_(std::move(model)),
      shape_(model_->shape()),
      tokenizer_(std::move(tokenizer)),
      kv_(shape_, layout.kv_blocks, layout.kv_dtype, layout.device, layout.torch_kernels, layout.bf16_activations),
      slots_(shape_,
             {.device_bytes = options.module_bytes,
              .dtype = layout.slot_dtype,
              .max_rank = options.max_rank,
              .torch_kernels = layout.torch_kernels},
             layout.device),
      slot_dtype_(layout.slot_dtype),
      pool_(layout.kv_blocks),
      scheduler_({.max_sequences = std::max(options.max_sequences, 1), .step_tokens = std::max(options.step_tokens, 1)},
                 pool_),
      merge_(*model_, options.restore_from == "clone" && !model_->is_quantised()),
      apply_(layout.apply, std::chrono::milliseconds(options.drain_ms)) {
    if (options_.max_context > 0) shape_.max_context = std::min(shape_.max_context, options_.max_context);
    // Files may name ids that the model cannot make; they would be masked outside of the row.
    std::erase_if(options_.end_tokens, [this](TokenId id) { return id < 0 || id >= shape_.vocab_size; });
    // A sequence that did not fit into the whole pool alone could never end.
    const std::int64_t pool_tokens = static_cast<std::int64_t>(layout.kv_blocks) * kBlockTokens;
    shape_.max_context = static_cast<int>(std::min<std::int64_t>(shape_.max_context, pool_tokens));
}

EngineImpl::~EngineImpl() = default;

EngineStats EngineImpl::stats() const {
    EngineStats stats;
    for (const auto& [id, running] : jobs_) {
        ++(running->has_blocks() ? stats.running : stats.waiting);
        if (!running->first_token && !running->waits_after)
            add_prompt_rows(stats.prompts, running->job->priority, running->choices[0]->sequence.pending());
    }
    stats.free_blocks = pool_.free_blocks();
    stats.cached_blocks = pool_.cached_blocks();
    stats.total_blocks = pool_.total_blocks();
    stats.slot_bytes = slots_.used_bytes();
    stats.slot_capacity_bytes = slots_.capacity_bytes();
    stats.weight_bytes = model_->weight_bytes() + merge_.copy_bytes();
    stats.can_merge = !model_->is_quantised();
    stats.merged = merge_.is_merged();
    if (const ModuleSet* merged = apply_.merged_set())
        for (const SlotWeight& one : *merged) stats.merged_slots.push_back(one.slot);
    stats.prompt_rows_per_second = prompt_rate_.rows_per_second();
    return stats;
}

std::uint64_t EngineImpl::slot_bytes(const Module& module) const { return slots_.bytes_for(module); }

Result<SlotId> EngineImpl::install(const ModulePtr& module) {
    auto slot = install_some(module, std::numeric_limits<double>::infinity());
    if (!slot) return slot.error();
    return **slot;
}

Result<std::optional<SlotId>> EngineImpl::install_some(const ModulePtr& module, double seconds) {
    std::optional<SlotId> installed;
    Error error = make_error(Errc::internal, "module \"" + module->id.name + "\" could not be installed");
    try {
        const c10::InferenceMode inference;
        if (!installing_) {
            if (auto begun = slots_.begin_install(module); !begun) return begun.error();
            installing_ = module;
        }
        ATTUNE_ASSERT(installing_ == module);
        const TimePoint begin = options_.now();
        const std::function<bool()> is_over = [&] {
            return milliseconds_between(begin, options_.now()) >= seconds * 1000;
        };
        installed = slots_.go_on_installing(std::isinf(seconds) ? nullptr : is_over);
        if (!installed) return installed;
        installing_ = nullptr;
        if (!module->prefix) return installed;
        auto given = give_prefix(*installed, *module->prefix);
        if (given) return installed;
        error = given.error();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): `error` says it
    }
    installing_ = nullptr;
    slots_.give_up_installing();
    if (installed) remove(*installed);
    return error;
}

Result<void> EngineImpl::give_prefix(SlotId slot, const PrefixSegment& prefix) {
    const int needed = BlockTable::blocks_for(prefix.tokens);
    BlockTable blocks(pool_);
    bool fits = blocks.grow_to(needed * kBlockTokens);
    // Every request must still fit when it is alone, or it could never end.
    for (const auto& [id, running] : jobs_) {
        const std::int64_t left = blocks_left() - needed;
        fits = fits && blocks_alone(*running->job, running->choices[0]->sequence.modules().virtual_tokens) <= left;
        if (running->waiting_switch)
            fits = fits && blocks_alone(*running->job, running->waiting_switch->acting.virtual_tokens) <= left;
    }
    if (!fits)
        return make_error(Errc::no_room, "module \"" + slots_.module(slot)->id.name + "\" needs " +
                                             std::to_string(needed) + " free blocks of the KV cache for its prefix");
    kv_.write_prefix(blocks.blocks(), prefix);
    prefixes_.emplace(slot, std::move(blocks));
    prefix_blocks_ += needed;
    return {};
}

void EngineImpl::remove(SlotId slot) {
    forget_merged(slot);
    if (const auto prefix = prefixes_.find(slot); prefix != prefixes_.end()) {
        prefix_blocks_ -= static_cast<int>(prefix->second.blocks().size());
        prefixes_.erase(prefix);
    }
    slots_.remove(slot);
}

}  // namespace attune
