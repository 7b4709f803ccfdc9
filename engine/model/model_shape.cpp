#include "engine/model/model_shape.hpp"

#include "engine/files/gguf.hpp"
#include "engine/files/model_path.hpp"
#include "engine/model/config_keys.hpp"
#include "engine/model/gguf_config.hpp"
#include "engine/model/model_config.hpp"
#include "engine/model/rope_config.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

namespace attune {

namespace {

using Json = nlohmann::json;

// A config is a page; whatever is larger is not one.
constexpr std::size_t kMaxConfigBytes = 4u << 20;

Error bad(const std::string& what) { return make_error(Errc::invalid_argument, "config.json: " + what); }
Error refused(const std::string& what) { return make_error(Errc::unsupported, "config.json: " + what); }

struct Family {
    std::string_view model_type;
    std::string_view architecture;
};
constexpr auto kFamilies = std::to_array<Family>({{"llama", "LlamaForCausalLM"},
                                                  {"mistral", "MistralForCausalLM"},
                                                  {"qwen2", "Qwen2ForCausalLM"},
                                                  {"qwen3", "Qwen3ForCausalLM"}});

bool given(const Json& config, const char* key) { return config.contains(key) && !config.at(key).is_null(); }

/// A whole number in [1, 2^31); `otherwise` where the key is absent or null and a default exists.
Result<int> read_count(const Json& config, const char* key, std::optional<int> otherwise = {}) {
    if (!given(config, key)) {
        if (otherwise) return *otherwise;
        return bad(std::string("\"") + key + "\" is missing");
    }
    const Json& value = config.at(key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
        value.get<std::int64_t>() > std::numeric_limits<int>::max())
        return bad(std::string("\"") + key + "\" must be a positive whole number");
    return value.get<int>();
}

Result<bool> read_flag(const Json& config, const char* key, bool otherwise) {
    if (!given(config, key)) return otherwise;
    if (!config.at(key).is_boolean()) return bad(std::string("\"") + key + "\" must be true or false");
    return config.at(key).get<bool>();
}

bool is_off(const Json& value) {
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number()) return value.get<double>() == 0;
    return (value.is_array() || value.is_object()) && value.empty();
}

Result<void> check_keys(const Json& config) {
    for (const auto& [key, value] : config.items()) {
        if (value.is_null() || changes_nothing(classify_config_key(key), is_off(value), value == 1)) continue;
        return refused("\"" + key + "\" is not supported");
    }
    return {};
}

Result<void> check_family(const Json& config, ModelShape& shape) {
    if (!given(config, "model_type") || !config.at("model_type").is_string()) return bad("\"model_type\" is missing");
    shape.model_type = config.at("model_type").get<std::string>();
    for (const Family& family : kFamilies) {
        if (family.model_type != shape.model_type) continue;
        if (!given(config, "architectures")) return {};
        const Json expected = Json::array({std::string(family.architecture)});
        if (config.at("architectures") == expected) return {};
        return refused("\"architectures\" is " + config.at("architectures").dump() + ", only " + expected.dump() +
                       " is supported for model_type \"" + shape.model_type + "\"");
    }
    return refused("model_type \"" + shape.model_type + "\" is not supported");
}

Result<void> read_dimensions(const Json& config, ModelShape& shape) {
    const struct {
        const char* key;
        int* into;
    } required[] = {{"hidden_size", &shape.hidden_size},
                    {"intermediate_size", &shape.intermediate_size},
                    {"num_attention_heads", &shape.heads},
                    {"vocab_size", &shape.vocab_size},
                    {"max_position_embeddings", &shape.max_context}};
    for (const auto& field : required) {
        auto value = read_count(config, field.key);
        if (!value) return value.error();
        *field.into = *value;
    }
    auto layers = read_count(config, "num_hidden_layers");
    if (!layers) return layers.error();
    if (*layers > 4096) return bad("\"num_hidden_layers\" is beyond 4096");
    shape.layers.resize(static_cast<std::size_t>(*layers));

    // Absent is not null: transformers then takes the family's default, null means "as many as query heads".
    std::optional<int> kv_default = shape.heads;
    if (!config.contains("num_key_value_heads") && shape.model_type != "llama") kv_default.reset();
    auto kv_heads = read_count(config, "num_key_value_heads", kv_default);
    if (!kv_heads) return kv_heads.error();
    shape.kv_heads = *kv_heads;
    if (shape.heads % shape.kv_heads != 0)
        return bad("\"num_attention_heads\" (" + std::to_string(shape.heads) +
                   ") is no multiple of \"num_key_value_heads\" (" + std::to_string(shape.kv_heads) + ")");

    const bool divides = shape.hidden_size % shape.heads == 0;
    std::optional<int> head_default;
    if (shape.model_type == "qwen3" && !config.contains("head_dim")) {
        head_default = 128;
    } else if (divides) {
        head_default = shape.hidden_size / shape.heads;
    }
    auto head_dim = read_count(config, "head_dim", head_default);
    if (!head_dim) return head_dim.error();
    shape.head_dim = *head_dim;
    if (shape.head_dim % 2 != 0) return bad("\"head_dim\" must be even");
    return {};
}

/// Which layers see only a sliding window. As transformers: mistral uses the window everywhere unless layer_types says
/// otherwise, qwen only with use_sliding_window and from max_window_layers on.
Result<void> read_windows(const Json& config, ModelShape& shape) {
    const std::string& type = shape.model_type;
    int window = 0;
    if (type == "mistral") {
        // Absent is 4096, the class default of MistralConfig; null is none.
        if (!config.contains("sliding_window") || given(config, "sliding_window")) {
            auto value = read_count(config, "sliding_window", 4096);
            if (!value) return value.error();
            window = *value;
        }
    } else if (type == "qwen2" || type == "qwen3") {
        auto use = read_flag(config, "use_sliding_window", false);
        if (!use) return use.error();
        if (*use && (!config.contains("sliding_window") || given(config, "sliding_window"))) {
            auto value = read_count(config, "sliding_window", 4096);
            if (!value) return value.error();
            window = *value;
        }
    } else if (given(config, "sliding_window")) {
        return refused("\"sliding_window\" is not supported for model_type \"" + type + "\"");
    }

    if (given(config, "layer_types")) {
        const Json& types = config.at("layer_types");
        if (!types.is_array() || types.size() != shape.layers.size())
            return bad("\"layer_types\" must name each of the " + std::to_string(shape.layers.size()) + " layers");
        for (std::size_t layer = 0; layer < types.size(); ++layer) {
            if (types[layer] == "full_attention" || types[layer] == "attention") continue;
            if (types[layer] != "sliding_attention")
                return refused("\"layer_types\" holds " + types[layer].dump() + ", which is not supported");
            if (window == 0) return bad("\"layer_types\" asks for a sliding window, but none is set");
            shape.layers[layer].window = window;
        }
        return {};
    }
    std::size_t first = 0;
    if (type != "mistral" && window > 0) {
        first = 28;
        if (given(config, "max_window_layers")) {
            const Json& value = config.at("max_window_layers");
            if (!value.is_number_unsigned()) return bad("\"max_window_layers\" must be a whole number");
            first = value.get<std::size_t>();
        }
    }
    for (std::size_t layer = first; layer < shape.layers.size(); ++layer) shape.layers[layer].window = window;
    return {};
}

Result<void> read_biases(const Json& config, ModelConfig& model) {
    const std::string& type = model.shape.model_type;
    auto attention = read_flag(config, "attention_bias", type == "qwen2");
    if (!attention) return attention.error();
    auto mlp = read_flag(config, "mlp_bias", false);
    if (!mlp) return mlp.error();
    if ((type == "mistral" && *attention) || (type == "qwen2" && !*attention))
        return refused("\"attention_bias\" is not supported for model_type \"" + type + "\"");
    if (type != "llama" && *mlp) return refused("\"mlp_bias\" is not supported for model_type \"" + type + "\"");
    model.qkv_bias = *attention;
    model.o_bias = *attention && type != "qwen2";
    model.mlp_bias = *mlp;
    model.qk_norm = type == "qwen3";
    return {};
}

Result<std::string> read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string name = path.filename().string();
    if (!file) return make_error(Errc::io, name + " cannot be opened");
    std::string text;
    text.resize(kMaxConfigBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxConfigBytes) return make_error(Errc::invalid_argument, name + " is larger than 4 MiB");
    return text;
}

Result<std::vector<TokenId>> parse_end_tokens(const Json& value, const std::string& name) {
    const Json list = value.is_array() ? value : Json::array({value});
    std::vector<TokenId> tokens;
    for (const Json& id : list) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
            id.get<std::int64_t>() > std::numeric_limits<TokenId>::max())
            return make_error(Errc::invalid_argument, name + ": \"eos_token_id\" must be a token id or a list of them");
        tokens.push_back(id.get<TokenId>());
    }
    return tokens;
}

}  // namespace

std::string_view projection_name(Projection projection) {
    static constexpr std::array<std::string_view, kProjections + 1> kNames{
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"};
    return kNames[static_cast<std::size_t>(projection)];
}

int ModelShape::in_features(Projection projection) const {
    switch (projection) {
        case Projection::o:
            return heads * head_dim;
        case Projection::down:
            return intermediate_size;
        default:
            return hidden_size;
    }
}

int ModelShape::out_features(Projection projection) const {
    switch (projection) {
        case Projection::q:
            return heads * head_dim;
        case Projection::k:
        case Projection::v:
            return kv_heads * head_dim;
        case Projection::gate:
        case Projection::up:
            return intermediate_size;
        case Projection::head:
            return vocab_size;
        default:
            return hidden_size;
    }
}

Result<ModelConfig> parse_model_config(std::string_view text) {
    const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) return bad("not a JSON object");

    ModelConfig model;
    ModelShape& shape = model.shape;
    // The family first: "model_type gemma2 is not supported" says more than the first of its unknown keys.
    if (auto ok = check_family(config, shape); !ok) return ok.error();
    if (auto ok = check_keys(config); !ok) return ok.error();
    if (auto ok = read_dimensions(config, shape); !ok) return ok.error();
    if (auto ok = read_windows(config, shape); !ok) return ok.error();
    if (auto ok = read_biases(config, model); !ok) return ok.error();

    if (given(config, "hidden_act") && config.at("hidden_act") != "silu")
        return refused("\"hidden_act\" " + config.at("hidden_act").dump() + " is not supported");
    if (given(config, "rms_norm_eps")) {
        if (!config.at("rms_norm_eps").is_number()) return bad("\"rms_norm_eps\" must be a number");
        model.norm_eps = config.at("rms_norm_eps").get<float>();
        if (!(model.norm_eps >= 0) || !std::isfinite(model.norm_eps))
            return bad("\"rms_norm_eps\" must not be negative");
    }
    auto tied = read_flag(config, "tie_word_embeddings", false);
    if (!tied) return tied.error();
    shape.tied_embeddings = *tied;

    auto rope = parse_rope(config);
    if (!rope) return rope.error();
    model.rope = rope->rope;
    // Qwen's recipe for yarn leaves max_position_embeddings at the original length and means factor times that.
    if (model.rope.kind == RopeKind::yarn) {
        const double scaled = std::min(model.rope.original_context * model.rope.factor, 1e8);
        shape.max_context = std::max(shape.max_context, static_cast<int>(scaled));
    }
    return model;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& model) {
    if (is_gguf_file(model)) return read_gguf_config(model);
    auto text = read_text(model / "config.json");
    if (!text) return text.error();
    return parse_model_config(*text);
}

Result<ModelShape> read_model_shape(const std::filesystem::path& model) {
    auto config = read_model_config(model);
    if (!config) return config.error();
    return std::move(config->shape);
}

Result<std::vector<TokenId>> read_end_tokens(const std::filesystem::path& model) {
    if (is_gguf_file(model)) {
        auto header = read_gguf_header(model);
        if (!header) return header.error();
        return gguf_end_tokens(*header);
    }
    for (const char* name : {"generation_config.json", "config.json"}) {
        std::error_code ignored;
        if (!std::filesystem::exists(model / name, ignored)) continue;
        auto text = read_text(model / name);
        if (!text) return text.error();
        const Json config = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
        if (!config.is_object()) return make_error(Errc::invalid_argument, std::string(name) + ": not a JSON object");
        if (given(config, "eos_token_id")) return parse_end_tokens(config.at("eos_token_id"), name);
    }
    return std::vector<TokenId>{};
}

}  // namespace attune
