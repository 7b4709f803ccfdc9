// Virtual tokens: prefix tuning (keys and values), prompt tuning and P-tuning (input embeddings).

#include "engine/module/site_input.hpp"

#include "engine/files/quote.hpp"

#include <utility>

namespace attune {
namespace {

Error refuse_config(const std::string& key, int value, std::int64_t wanted) {
    return make_error(Errc::invalid_module, "adapter_config.json: " + key + " is " + std::to_string(value) +
                                                ", this base wants " + std::to_string(wanted));
}

/// prompt_embeddings [tokens, layers * 2 * kv_heads * head_dim]; per token: layer 0's key, its value, layer 1's key,
/// ...
PrefixSegment prefix_of(const std::vector<float>& rows, int tokens, const ModelShape& base) {
    const std::size_t width = static_cast<std::size_t>(base.kv_heads) * static_cast<std::size_t>(base.head_dim);
    const auto layers = static_cast<std::size_t>(base.layer_count());
    PrefixSegment prefix;
    prefix.tokens = tokens;
    prefix.keys.reserve(rows.size() / 2);
    prefix.values.reserve(rows.size() / 2);
    for (std::size_t layer = 0; layer < layers; ++layer)
        for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
            const float* key = rows.data() + (token * layers + layer) * 2 * width;
            prefix.keys.insert(prefix.keys.end(), key, key + width);
            prefix.values.insert(prefix.values.end(), key + width, key + 2 * width);
        }
    return prefix;
}

}  // namespace

Result<void> plan_prompt(const PlanContext& context) {
    const PeftConfig& config = context.config;
    const ModelShape& base = context.base;
    const bool prefix = config.type == PeftType::prefix;
    const std::int64_t kv_width = static_cast<std::int64_t>(base.kv_heads) * base.head_dim;
    const std::int64_t width = prefix ? kv_width * 2 * base.layer_count() : base.hidden_size;
    const std::int64_t token_width = prefix ? kv_width : base.hidden_size;
    if (config.prompt_layers != 0 && config.prompt_layers != base.layer_count())
        return refuse_config("num_layers", config.prompt_layers, base.layer_count());
    if (config.prompt_width != 0 && config.prompt_width != token_width)
        return refuse_config("token_dim", config.prompt_width, token_width);
    if (config.virtual_tokens >= base.max_context)
        return make_error(Errc::invalid_module, "adapter_config.json: num_virtual_tokens is " +
                                                    std::to_string(config.virtual_tokens) +
                                                    ", this base's context is " + std::to_string(base.max_context));
    const auto found = context.tensors.shared.find("prompt_embeddings");
    if (found == context.tensors.shared.end())
        return make_error(Errc::invalid_module, context.header.file_name + ": prompt_embeddings is missing");
    const StoredTensor* tensor = found->second;
    const std::vector<std::int64_t> wanted{config.virtual_tokens, width};
    if (tensor->shape != wanted)
        return make_error(Errc::invalid_module, context.header.file_name + ": prompt_embeddings is " +
                                                    shape_text(tensor->shape) + ", this base wants " +
                                                    shape_text(wanted));
    PlannedPart part;
    if (prefix)
        part.made_bytes =
            static_cast<std::uint64_t>(config.virtual_tokens) * static_cast<std::uint64_t>(width) * kFloatBytes;
    part.build = [tensor, prefix, base, tokens = config.virtual_tokens](TensorValues& values, const BaseValues*,
                                                                        Module& into) -> Result<void> {
        if (prefix) {
            into.prefix = prefix_of(values[tensor], tokens, base);
            values[tensor] = {};
        } else {
            into.prompt = SoftPrompt{tokens, std::move(values[tensor])};
        }
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

}  // namespace attune
