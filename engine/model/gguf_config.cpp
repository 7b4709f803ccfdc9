#include "engine/model/gguf_config.hpp"

#include "engine/model/config_keys.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

namespace {

constexpr auto kArchitectures = std::to_array<std::string_view>({"llama", "qwen2", "qwen3"});
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

/// The keys below "<architecture>." of one header.
class KeyReader {
public:
    KeyReader(const GgufHeader& header, std::string architecture)
        : header_(header), architecture_(std::move(architecture)) {}

    std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }

    Error bad(std::string_view key, const std::string& what) const {
        return make_error(Errc::invalid_argument, header_.file_name + ": \"" + full(key) + "\" " + what);
    }
    Error refused(std::string_view key, const std::string& what) const {
        return make_error(Errc::unsupported, header_.file_name + ": \"" + full(key) + "\" " + what);
    }

    bool has(std::string_view key) const { return header_.find(full(key)) != nullptr; }

    /// A whole number in [least, 2^31); `otherwise` where the key is absent and a default exists.
    Result<int> count(std::string_view key, std::optional<int> otherwise = {}, int least = 1) const {
        auto value = header_.integer(full(key));
        if (!value) return value.error();
        if (!*value) return otherwise ? Result<int>(*otherwise) : Result<int>(bad(key, "is missing"));
        if (**value < least || **value > std::numeric_limits<int>::max())
            return bad(key, "is " + std::to_string(**value) + ", which is out of range");
        return static_cast<int>(**value);
    }

    /// A finite number; `otherwise` where the key is absent.
    Result<double> number(std::string_view key, double otherwise) const {
        auto value = header_.real(full(key));
        if (!value) return value.error();
        if (!*value) return otherwise;
        if (!std::isfinite(**value)) return bad(key, "is not finite");
        return **value;
    }

private:
    const GgufHeader& header_;
    std::string architecture_;
};

bool is_off(const GgufValue& value) {
    struct Visitor {
        bool operator()(std::uint64_t number) const { return number == 0; }
        bool operator()(std::int64_t number) const { return number == 0; }
        bool operator()(double number) const { return number == 0; }
        bool operator()(bool flag) const { return !flag; }
        bool operator()(const std::string& text) const { return text.empty(); }
        bool operator()(const GgufArray& array) const { return array.size() == 0; }
    };
    return std::visit(Visitor{}, value.value);
}

bool is_one(const GgufValue& value) {
    struct Visitor {
        bool operator()(std::uint64_t number) const { return number == 1; }
        bool operator()(std::int64_t number) const { return number == 1; }
        bool operator()(double number) const { return number == 1; }
        bool operator()(bool flag) const { return flag; }
        bool operator()(const std::string&) const { return false; }
        bool operator()(const GgufArray&) const { return false; }
    };
    return std::visit(Visitor{}, value.value);
}

/// Only the architecture's own keys can change the result: llama.cpp reads no others for the mathematics.
Result<void> check_keys(const GgufHeader& header, const KeyReader& keys, const std::string& architecture) {
    const std::string prefix = architecture + ".";
    for (const auto& [key, value] : header.metadata) {
        if (!key.starts_with(prefix)) continue;
        const std::string_view rest = std::string_view(key).substr(prefix.size());
        if (!changes_nothing(classify_gguf_key(rest), is_off(value), is_one(value)))
            return keys.refused(rest, "is not supported");
    }
    return {};
}

/// The architecture, once it is sure that this file is a whole model of a kind we know.
Result<std::string> check_kind(const GgufHeader& header) {
    auto type = header.text("general.type");
    if (!type) return type.error();
    if (type->value_or("model") != "model")
        return make_error(Errc::unsupported, header.file_name + ": \"general.type\" is \"" + **type + "\", no model");
    auto parts = header.integer("split.count");
    if (!parts) return parts.error();
    if (parts->value_or(1) > 1)
        return make_error(Errc::unsupported, header.file_name + ": \"split.count\" is " + std::to_string(**parts) +
                                                 ", a model in several files is not supported");
    auto architecture = header.text("general.architecture");
    if (!architecture) return architecture.error();
    if (!*architecture)
        return make_error(Errc::invalid_argument, header.file_name + ": \"general.architecture\" is missing");
    if (std::find(kArchitectures.begin(), kArchitectures.end(), **architecture) == kArchitectures.end())
        return make_error(Errc::unsupported, header.file_name + ": \"general.architecture\" is \"" + **architecture +
                                                 "\", which is not supported");
    return **std::move(architecture);
}

Result<void> read_dimensions(const KeyReader& keys, ModelShape& shape) {
    const struct {
        const char* key;
        int* into;
    } required[] = {{"embedding_length", &shape.hidden_size},
                    {"feed_forward_length", &shape.intermediate_size},
                    {"attention.head_count", &shape.heads},
                    {"context_length", &shape.max_context}};
    for (const auto& field : required) {
        auto value = keys.count(field.key);
        if (!value) return value.error();
        *field.into = *value;
    }
    auto layers = keys.count("block_count");
    if (!layers) return layers.error();
    if (*layers > 4096) return keys.bad("block_count", "is beyond 4096");
    shape.layers.resize(static_cast<std::size_t>(*layers));

    auto kv_heads = keys.count("attention.head_count_kv", shape.heads);
    if (!kv_heads) return kv_heads.error();
    shape.kv_heads = *kv_heads;
    if (shape.heads % shape.kv_heads != 0)
        return keys.bad("attention.head_count", "(" + std::to_string(shape.heads) + ") is no multiple of \"" +
                                                    keys.full("attention.head_count_kv") + "\" (" +
                                                    std::to_string(shape.kv_heads) + ")");

    std::optional<int> head_default;
    if (shape.hidden_size % shape.heads == 0) head_default = shape.hidden_size / shape.heads;
    auto head_dim = keys.count("attention.key_length", head_default);
    if (!head_dim) return head_dim.error();
    shape.head_dim = *head_dim;
    if (shape.head_dim % 2 != 0) return keys.bad("attention.key_length", "must be even");
    for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
        auto value = keys.count(key, shape.head_dim);
        if (!value) return value.error();
        if (*value != shape.head_dim)
            return keys.refused(key, "is " + std::to_string(*value) + ", only the head's size (" +
                                         std::to_string(shape.head_dim) + ") is supported");
    }
    return {};
}

/// llama.cpp's files of mistral models say "llama"; the window is what tells them apart.
Result<void> read_window(const KeyReader& keys, ModelShape& shape) {
    constexpr std::string_view kKey = "attention.sliding_window";
    auto window = keys.count(kKey, 0, 0);
    if (!window) return window.error();
    if (*window == 0 || *window >= shape.max_context) return {};
    if (shape.model_type != "llama") return keys.refused(kKey, "is not supported for this architecture");
    shape.model_type = "mistral";
    for (LayerShape& layer : shape.layers) layer.window = *window;
    return {};
}

/// The rotation's base and its stretching, as llama.cpp's loader understands the keys.
Result<void> read_rope(const GgufHeader& header, const KeyReader& keys, ModelConfig& model) {
    RopeConfig& rope = model.rope;
    auto theta = keys.number("rope.freq_base", 10000.0);
    if (!theta) return theta.error();
    if (!(*theta > 1)) return keys.bad("rope.freq_base", "must be above 1");
    rope.theta = *theta;

    auto kind = header.text(keys.full("rope.scaling.type"));
    if (!kind) return kind.error();
    // Older files only know scale_linear. Zero means "none" in both, and a factor without a type is linear.
    const char* factor_key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    auto factor = keys.number(factor_key, 0);
    if (!factor) return factor.error();
    if (*factor < 0) return keys.bad(factor_key, "must not be negative");
    const double stretch = *factor == 0 ? 1.0 : *factor;
    const std::string type = kind->value_or("linear");
    if (type == "none") return {};
    if (type == "linear") {
        if (stretch != 1.0) {
            rope.kind = RopeKind::linear;
            rope.factor = stretch;
        }
        return {};
    }
    if (type != "yarn") return keys.refused("rope.scaling.type", "is \"" + type + "\", which is not supported");

    rope.kind = RopeKind::yarn;
    rope.factor = stretch;
    rope.attention_factor = stretch <= 1 ? 1.0 : 0.1 * std::log(stretch) + 1.0;
    const struct {
        const char* key;
        double* into;
        double otherwise;
    } fields[] = {
        {"rope.scaling.original_context_length", &rope.original_context, static_cast<double>(model.shape.max_context)},
        {"rope.scaling.yarn_beta_fast", &rope.beta_fast, 32.0},
        {"rope.scaling.yarn_beta_slow", &rope.beta_slow, 1.0}};
    for (const auto& field : fields) {
        auto value = keys.number(field.key, field.otherwise);
        if (!value) return value.error();
        if (!(*value > 0)) return keys.bad(field.key, "must be positive");
        *field.into = *value;
    }
    // As for config.json: files that keep the original length as context_length mean factor times that.
    const double scaled = std::min(rope.original_context * rope.factor, 1e8);
    model.shape.max_context = std::max(model.shape.max_context, static_cast<int>(scaled));
    return {};
}

/// The dimensions must be those of the tensors before anyone makes room for them: metadata can ask for any amount of
/// memory, tensors lie in the file. One layer stands for all here, the load looks at each.
Result<void> check_sizes(const GgufHeader& header, const ModelShape& shape) {
    const std::int64_t hidden = shape.hidden_size;
    const std::int64_t q_rows = static_cast<std::int64_t>(shape.heads) * shape.head_dim;
    const std::int64_t kv_rows = static_cast<std::int64_t>(shape.kv_heads) * shape.head_dim;
    const std::pair<const char*, std::vector<std::int64_t>> expected[] = {
        {"token_embd.weight", {shape.vocab_size, hidden}},
        {"blk.0.attn_q.weight", {q_rows, hidden}},
        {"blk.0.attn_k.weight", {kv_rows, hidden}},
        {"blk.0.ffn_up.weight", {shape.intermediate_size, hidden}},
    };
    for (const auto& [name, extents] : expected) {
        const StoredTensor* stored = header.tensor(name);
        if (stored != nullptr && stored->shape == extents) continue;
        std::string wanted;
        for (const std::int64_t extent : extents) wanted += (wanted.empty() ? "" : ", ") + std::to_string(extent);
        return make_error(Errc::invalid_argument, header.file_name + ": tensor \"" + name + "\" is " +
                                                      (stored == nullptr ? "missing" : "of another shape") +
                                                      ", the metadata wants [" + wanted + "]");
    }
    return {};
}

/// What the tensors alone say.
Result<void> read_tensor_facts(const GgufHeader& header, const KeyReader& keys, ModelConfig& model) {
    ModelShape& shape = model.shape;
    const StoredTensor* embedding = header.tensor("token_embd.weight");
    if (embedding == nullptr)
        return make_error(Errc::invalid_argument, header.file_name + ": tensor \"token_embd.weight\" is missing");
    if (embedding->shape.size() != 2 || embedding->shape[0] < 1 ||
        embedding->shape[0] > std::numeric_limits<int>::max())
        return make_error(Errc::invalid_argument, header.file_name + ": tensor \"token_embd.weight\" is no matrix");
    shape.vocab_size = static_cast<int>(embedding->shape[0]);
    auto vocabulary = keys.count("vocab_size", shape.vocab_size);
    if (!vocabulary) return vocabulary.error();
    if (*vocabulary != shape.vocab_size)
        return keys.bad("vocab_size", "is " + std::to_string(*vocabulary) + ", \"token_embd.weight\" has " +
                                          std::to_string(shape.vocab_size) + " rows");

    const auto holds = [&](const char* name) { return header.tensor(name) != nullptr; };
    shape.tied_embeddings = !holds("output.weight");
    model.qkv_bias = holds("blk.0.attn_q.bias");
    model.o_bias = holds("blk.0.attn_output.bias");
    model.mlp_bias = holds("blk.0.ffn_up.bias");
    model.qk_norm = shape.model_type == "qwen3";

    if (const StoredTensor* factors = header.tensor(kRopeFactors)) {
        if (factors->shape != std::vector<std::int64_t>{shape.head_dim / 2} || factors->type != StoredType::f32)
            return make_error(Errc::invalid_argument, header.file_name + ": tensor \"" + std::string(kRopeFactors) +
                                                          "\" must be F32 [" + std::to_string(shape.head_dim / 2) +
                                                          "], one factor for each pair of a head's dimensions");
    }
    return {};
}

}  // namespace

Result<ModelConfig> parse_gguf_config(const GgufHeader& header) {
    auto architecture = check_kind(header);
    if (!architecture) return architecture.error();
    const KeyReader keys(header, *architecture);
    if (auto ok = check_keys(header, keys, *architecture); !ok) return ok.error();

    ModelConfig model;
    model.shape.model_type = *architecture;
    if (auto ok = read_dimensions(keys, model.shape); !ok) return ok.error();
    if (auto ok = read_window(keys, model.shape); !ok) return ok.error();
    if (auto ok = read_rope(header, keys, model); !ok) return ok.error();
    if (auto ok = read_tensor_facts(header, keys, model); !ok) return ok.error();
    if (auto ok = check_sizes(header, model.shape); !ok) return ok.error();

    constexpr const char* kEpsilon = "attention.layer_norm_rms_epsilon";
    if (!keys.has(kEpsilon)) return keys.bad(kEpsilon, "is missing");
    auto epsilon = keys.number(kEpsilon, 0);
    if (!epsilon) return epsilon.error();
    if (*epsilon < 0) return keys.bad(kEpsilon, "must not be negative");
    model.norm_eps = static_cast<float>(*epsilon);
    return model;
}

Result<ModelConfig> read_gguf_config(const std::filesystem::path& path) {
    auto file = ReadOnlyFile::open(path);
    if (!file) return file.error();
    auto header = read_gguf_header(*file);
    if (!header) return header.error();
    auto model = parse_gguf_config(*header);
    if (!model) return model;
    const StoredTensor* stored = header->tensor(kRopeFactors);
    if (stored == nullptr) return model;
    std::vector<float>& factors = model->rope.factors;
    factors.resize(static_cast<std::size_t>(model->shape.head_dim) / 2);
    if (auto ok = file->read(stored->begin, std::as_writable_bytes(std::span(factors))); !ok) return ok.error();
    for (const float factor : factors) {
        if (!(factor > 0) || !std::isfinite(factor))
            return make_error(Errc::invalid_argument, header->file_name + ": tensor \"" + std::string(kRopeFactors) +
                                                          "\" holds a factor that is not positive");
    }
    return model;
}

Result<std::vector<TokenId>> gguf_end_tokens(const GgufHeader& header) {
    std::vector<TokenId> tokens;
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
        const std::string key = std::string("tokenizer.ggml.") + name;
        auto id = header.integer(key);
        if (!id) return id.error();
        if (!*id) continue;
        if (**id < 0 || **id > std::numeric_limits<TokenId>::max())
            return make_error(Errc::invalid_argument, header.file_name + ": \"" + key + "\" must be a token id");
        const auto token = static_cast<TokenId>(**id);
        if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
    }
    return tokens;
}

}  // namespace attune
