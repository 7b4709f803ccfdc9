// adapter_config.json, module_config.json and config.json: the same text as each of them.
#include "engine/model/model_config.hpp"
#include "engine/module/adapter_plan.hpp"
#include "engine/module/manifest.hpp"
#include "engine/module/peft_config.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/small_base.hpp"

#include <array>
#include <cmath>

namespace attune::fuzz {
namespace {

// A rank-2 pair on each layer's q_proj.
SafetensorsHeader small_header() {
    SafetensorsHeader header;
    header.file_name = "adapter_model.safetensors";
    for (int layer = 0; layer < 2; ++layer) {
        const std::string path = "base_model.model.model.layers." + std::to_string(layer) + ".self_attn.q_proj.";
        header.tensors.push_back({path + "lora_A.weight", "F32", StoredType::f32, {2, 8}, 0, 64});
        header.tensors.push_back({path + "lora_B.weight", "F32", StoredType::f32, {8, 2}, 64, 64});
    }
    return header;
}

void check_peft(std::span<const std::byte> text, const ModelShape& base) {
    static const SafetensorsHeader kHeader = small_header();
    const auto config = parse_peft_config(text);
    if (!config) return demand(!config.error().message.empty());
    constexpr std::array<std::string_view, 3> kPaths = {"model.layers.0.self_attn.q_proj",
                                                        "model.layers.11.mlp.down_proj", ""};
    for (const std::string_view path : kPaths) {
        (void)config->is_target(path, base.model_type);
        (void)config->is_feedforward(path);
        (void)config->targets_layer(path);
        (void)config->scale(path, 2);
    }
    const auto plan = plan_adapter(kHeader, *config, base, 64, nullptr);
    if (plan) demand(!plan->kind.empty() && plan->max_rank <= 64 && plan->parts.size() + plan->streams.size() > 0);
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    static const ModelShape kBase = fuzz::small_base();
    const auto text = fuzz::bytes_of(data, size);
    fuzz::check_peft(text, kBase);
    for (const bool allow_unverified : {false, true}) {
        const auto manifest = parse_manifest(text, kBase, allow_unverified);
        if (manifest) fuzz::demand(std::isfinite(manifest->adapter_scale) && !manifest->name.empty());
    }
    const auto model = parse_model_config(fuzz::text_of(data, size));
    if (model) fuzz::demand(model->shape.layer_count() > 0 && model->shape.head_dim > 0);
    return 0;
}
