#include "cli/open_base.hpp"

#include "attune/log.hpp"
#include "engine/files/model_path.hpp"
#include "engine/model/model_shape.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace attune::cli {
namespace {

EngineOptions engine_options(const Settings& settings, std::vector<TokenId> end_tokens) {
    EngineOptions options;
    options.model = settings.model.path;
    options.device = settings.model.device;
    options.dtype = settings.model.dtype;
    options.kernels = settings.model.kernels;
    options.activations = settings.model.activations;
    options.max_context = settings.model.max_context;
    options.kv_bytes = settings.model.kv_bytes;
    options.prefix_cache = settings.model.prefix_cache;
    options.max_sequences = settings.scheduler.max_sequences;
    options.step_tokens = settings.scheduler.step_tokens;
    options.module_bytes = settings.modules.device_bytes;
    options.slot_dtype = settings.modules.slot_dtype;
    options.max_rank = settings.modules.max_rank;
    options.apply = settings.scheduler.apply;
    options.drain_ms = settings.scheduler.drain_ms;
    options.restore_from = settings.modules.restore_from;
    options.slo_itl_ms = settings.scheduler.slo_itl_ms;
    options.threads = settings.model.threads;
    options.end_tokens = std::move(end_tokens);
    return options;
}

std::string seconds_since(TimePoint begin) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", milliseconds_between(begin, steady_now()) / 1000);
    return text;
}

}  // namespace

std::string base_id(const Settings& settings) {
    if (!settings.model.id.empty()) return settings.model.id;
    if (is_gguf_file(settings.model.path)) return settings.model.path.stem().string();
    // "models/smol/" and "." are folders with names, too.
    std::error_code failed;
    std::filesystem::path folder = std::filesystem::canonical(settings.model.path, failed);
    if (failed) folder = settings.model.path;
    return folder.filename().string();
}

Result<OpenedBase> open_base(const Settings& settings, bool park_preempted) {
    const std::filesystem::path& model = settings.model.path;
    const TimePoint begin = steady_now();
    log(LogLevel::info, "reading model " + base_id(settings));
    OpenedBase base;
    auto tokenizer = Tokenizer::open(model);
    // A model without one answers to token ids; one that is there and cannot be used is refused by its name.
    if (!tokenizer && tokenizer.error().code != Errc::not_found) return tokenizer.error();
    if (tokenizer) {
        base.tokenizer = std::move(*tokenizer);
        auto chat_template = ChatTemplate::open(model);
        if (!chat_template) return chat_template.error();
        base.chat_template = std::move(*chat_template);
    } else {
        log(LogLevel::warn, "the model has no tokenizer: prompts must be token ids");
    }
    auto end_tokens = read_end_tokens(model);
    if (!end_tokens) return end_tokens.error();
    EngineOptions options = engine_options(settings, std::move(*end_tokens));
    options.park_preempted = park_preempted;
    auto engine = Engine::open(options, base.tokenizer);
    if (!engine) return engine.error();
    base.engine = std::move(*engine);
    if (options.apply == "auto" && !base.engine->stats().can_merge)
        log(LogLevel::info,
            "scheduler.apply is auto: modules act row by row, as nothing is merged into quantised weights");
    log(LogLevel::info, "model ready in " + seconds_since(begin) + ": " + base.engine->shape().model_type + ", " +
                            std::to_string(base.engine->shape().layer_count()) + " layers, " +
                            std::to_string(base.engine->stats().weight_bytes >> 20) + " MiB of weights, " +
                            std::to_string(base.engine->stats().total_blocks) + " KV blocks");
    return base;
}

}  // namespace attune::cli
