#include "engine/module/lora_plan.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace attune {
namespace {

Error refuse(const SafetensorsHeader& header, const std::string& fault) {
    return make_error(Errc::invalid_module, header.file_name + ": " + fault);
}

Error refuse_config(const std::string& fault) {
    return make_error(Errc::invalid_module, "adapter_config.json: " + fault);
}

constexpr std::string_view kWrapper = "base_model.model.";
// Text models sit under one of these, also inside multimodal ones.
constexpr std::array<std::string_view, 3> kTrunks = {"model.layers.", "language_model.model.layers.",
                                                     "model.language_model.layers."};

bool is_mlp(Projection projection) { return projection >= Projection::gate; }

std::string module_path(std::string_view trunk, int layer, Projection projection) {
    return std::string(trunk) + std::to_string(layer) + (is_mlp(projection) ? ".mlp." : ".self_attn.") +
           std::string(projection_name(projection));
}

struct Place {
    std::string_view trunk;
    int layer = 0;
    Projection projection{};
};

// "model.layers.3.self_attn.q_proj" -> where it sits. The layer may lie beyond the base's; the caller says so.
std::optional<Place> find_place(std::string_view path) {
    for (const std::string_view trunk : kTrunks) {
        if (!path.starts_with(trunk)) continue;
        Place place{.trunk = trunk};
        const std::string_view rest = path.substr(trunk.size());
        const auto [end, fault] = std::from_chars(rest.data(), rest.data() + rest.size(), place.layer);
        if (fault != std::errc() || place.layer < 0) return std::nullopt;
        for (int i = 0; i < kProjections; ++i) {
            place.projection = static_cast<Projection>(i);
            if (path == module_path(trunk, place.layer, place.projection)) return place;
        }
    }
    return std::nullopt;
}

// Why a tensor that is no half of a projection's pair is refused.
Error explain(const SafetensorsHeader& header, const PeftConfig& config, const StoredTensor& tensor) {
    const std::string who = "tensor " + in_quotes(tensor.name) + ": ";
    const auto has = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
    if (has("lora_magnitude_vector"))
        return refuse(header, who + (config.dora ? "DoRA (use_dora) is not supported yet"
                                                 : "it is a DoRA magnitude, but use_dora is not set"));
    if (has("lora_embedding_") || (has("embed_tokens") && has(".base_layer.")))
        return refuse(header, who + "LoRA on embeddings is not supported yet");
    if (has("trainable_tokens")) return refuse(header, who + "new tokens are not supported yet");
    if (tensor.name.ends_with(".bias"))
        return refuse(header, who + (config.bias ? "biases (" + config.bias_word + ") are not supported yet"
                                                 : "it is a bias, but the config names none"));
    if (has("lm_head.lora_") || has("lm_head.base_layer."))
        return refuse(header, who + "LoRA on lm_head is not supported yet");
    for (const std::string& saved : config.modules_to_save)
        if (has(saved + "."))
            return refuse(header,
                          who + "whole modules (modules_to_save " + in_quotes(saved) + ") are not supported yet");
    return refuse(header, who + "this base has no place for it");
}

// What the config promises and no tensor keeps.
Result<void> check_promises(const PeftConfig& config) {
    if (config.dora) return refuse_config("use_dora is true, but the file has no lora_magnitude_vector");
    if (config.bias) return refuse_config(config.bias_word + ", but the file has no bias");
    if (!config.modules_to_save.empty())
        return refuse_config("modules_to_save names " + in_quotes(config.modules_to_save.front()) +
                             ", but the file has no tensor for it");
    for (const char* path : {"lm_head", "model.embed_tokens"})
        if (!config.targets.all_linear && config.targets.contains(path) &&
            !(config.excluded && config.excluded->contains(path)))
            return refuse_config(std::string("target_modules names ") + path + ", but the file has no tensor for it");
    return {};
}

using Halves = std::map<std::pair<int, int>, PlannedPair>;

Result<void> add_half(const SafetensorsHeader& header, const StoredTensor& tensor, const PeftConfig& config,
                      const ModelShape& base, Halves& halves, std::string_view& trunk) {
    std::string_view name = tensor.name;
    const bool is_a = name.ends_with(".lora_A.weight");
    if (!is_a && !name.ends_with(".lora_B.weight")) return explain(header, config, tensor);
    name.remove_suffix(std::string_view(".lora_A.weight").size());
    if (!name.starts_with(kWrapper)) return explain(header, config, tensor);
    const auto place = find_place(name.substr(kWrapper.size()));
    if (!place) return explain(header, config, tensor);
    const std::string who = "tensor " + in_quotes(tensor.name) + ": ";
    if (place->layer >= base.layer_count())
        return refuse(header, who + "this base has layers 0 to " + std::to_string(base.layer_count() - 1));
    if (!trunk.empty() && trunk != place->trunk)
        return refuse(header, who + "its prefix is not that of the other tensors");
    trunk = place->trunk;
    if (tensor.type != StoredType::f32 && tensor.type != StoredType::f16 && tensor.type != StoredType::bf16)
        return refuse(header, who + "dtype " + tensor.type_name + " is not supported, only F32, F16 and BF16");
    PlannedPair& pair = halves[{place->layer, static_cast<int>(place->projection)}];
    pair.layer = place->layer;
    pair.projection = place->projection;
    (is_a ? pair.a : pair.b) = &tensor;
    return {};
}

Result<void> check_shapes(const SafetensorsHeader& header, PlannedPair& pair, const std::string& path,
                          const ModelShape& base, int max_rank) {
    if (pair.a == nullptr || pair.b == nullptr) {
        const std::string there = pair.a == nullptr ? "lora_B" : "lora_A";
        const std::string missing = pair.a == nullptr ? "lora_A" : "lora_B";
        return refuse(header, path + " has " + there + ", but no " + missing);
    }
    const std::int64_t in = base.in_features(pair.projection);
    const std::int64_t out = base.out_features(pair.projection);
    const auto& a = pair.a->shape;
    const auto& b = pair.b->shape;
    if (a.size() != 2 || a[1] != in)
        return refuse(header,
                      path + ": lora_A is " + shape_text(a) + ", this base wants [r, " + std::to_string(in) + "]");
    if (b.size() != 2 || b[0] != out)
        return refuse(header,
                      path + ": lora_B is " + shape_text(b) + ", this base wants [" + std::to_string(out) + ", r]");
    if (a[0] != b[1])
        return refuse(header, path + ": lora_A is " + shape_text(a) + ", lora_B is " + shape_text(b) + ": two ranks");
    if (a[0] < 1) return refuse(header, path + ": its rank is 0");
    if (a[0] > max_rank)
        return refuse(header,
                      path + ": its rank is " + std::to_string(a[0]) + ", the limit is " + std::to_string(max_rank));
    pair.rank = static_cast<int>(a[0]);
    return {};
}

Result<void> check_config(const SafetensorsHeader& header, PlannedPair& pair, const std::string& path,
                          const PeftConfig& config) {
    const int promised = static_cast<int>(config.rank_pattern.lookup(path, config.rank));
    if (promised != pair.rank)
        return refuse(header, path + ": its rank is " + std::to_string(pair.rank) + ", the config says " +
                                  std::to_string(promised));
    pair.scale = config.scale(path, pair.rank);
    if (!std::isfinite(static_cast<float>(pair.scale))) return refuse(header, path + ": its scale is not finite");
    return {};
}

// Both ways: a promised module without tensors was lost, a module with tensors that the config excludes would change a
// result that PEFT gives without it.
Result<void> check_targets(const SafetensorsHeader& header, const Halves& halves, const PeftConfig& config,
                           const ModelShape& base, std::string_view trunk) {
    const std::string names = [&] {
        std::string list;
        for (const std::string& name : config.targets.names) list += (list.empty() ? "" : ", ") + in_quotes(name);
        return list.empty() ? std::string("a pattern") : list;
    }();
    for (int layer = 0; layer < base.layer_count(); ++layer)
        for (int i = 0; i < kProjections; ++i) {
            const std::string path = module_path(trunk, layer, static_cast<Projection>(i));
            const bool there = halves.contains({layer, i});
            if (config.is_target(path) == there) continue;
            if (there)
                return refuse(header, path + " has tensors, but target_modules (" + names + ") does not name it");
            return refuse_config("target_modules (" + names + ") names " + path +
                                 ", but the file has no tensor for it");
        }
    return {};
}

}  // namespace

Result<std::vector<PlannedPair>> plan_lora(const SafetensorsHeader& header, const PeftConfig& config,
                                           const ModelShape& base, int max_rank) {
    Halves halves;
    std::string_view trunk;
    for (const StoredTensor& tensor : header.tensors)
        if (auto added = add_half(header, tensor, config, base, halves, trunk); !added) return added.error();
    if (auto kept = check_promises(config); !kept) return kept.error();
    if (halves.empty()) return refuse(header, "it holds no tensor: no module of this base is adapted");
    std::vector<PlannedPair> plan;
    plan.reserve(halves.size());
    for (auto& [key, pair] : halves) {
        const std::string path = module_path(trunk, pair.layer, pair.projection);
        if (auto shapes = check_shapes(header, pair, path, base, max_rank); !shapes) return shapes.error();
        if (auto agreed = check_config(header, pair, path, config); !agreed) return agreed.error();
        plan.push_back(pair);
    }
    if (auto targets = check_targets(header, halves, config, base, trunk); !targets) return targets.error();
    return plan;
}

}  // namespace attune
