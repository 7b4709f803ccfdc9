#include "engine/module/state_part.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/manifest.hpp"
#include "engine/module/tensor_reader.hpp"
#include "engine/module/transposed.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace attune {
namespace {

using Json = OrderedJson;

Error refuse_config(const std::string& fault) {
    return make_error(Errc::invalid_module, "module_config.json: " + fault);
}

constexpr float kDefaultScale = 0.1F;

constexpr std::pair<std::string_view, StateKind> kKinds[] = {
    {"vector", StateKind::vector}, {"linear", StateKind::linear}, {"bottleneck", StateKind::bottleneck}};
constexpr std::pair<std::string_view, Activation> kActivations[] = {{"identity", Activation::identity},
                                                                    {"tanh", Activation::tanh},
                                                                    {"relu", Activation::relu},
                                                                    {"silu", Activation::silu},
                                                                    {"gelu", Activation::gelu}};

std::optional<int> whole_number(std::string_view text) {
    int value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || fault != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

Result<std::vector<int>> range(int first, int last, const ModelShape& base) {
    if (last >= base.layer_count())
        return refuse_config("state.layers reach layer " + std::to_string(last) + ", this base has layers 0 to " +
                             std::to_string(base.layer_count() - 1));
    std::vector<int> layers(static_cast<std::size_t>(last - first + 1));
    std::iota(layers.begin(), layers.end(), first);
    return layers;
}

/// "12-19" or "middle:8"
Result<std::vector<int>> layers_of_text(const std::string& text, const ModelShape& base) {
    const Error odd =
        refuse_config("state.layers is " + in_quotes(text) + ", not a range like \"12-19\" or \"middle:8\"");
    if (text.starts_with("middle:")) {
        const auto count = whole_number(std::string_view(text).substr(7));
        if (!count || *count < 1) return odd;
        if (*count > base.layer_count())
            return refuse_config("state.layers is " + in_quotes(text) + ", this base has " +
                                 std::to_string(base.layer_count()) + " layers");
        const int first = (base.layer_count() - *count) / 2;
        return range(first, first + *count - 1, base);
    }
    const auto dash = text.find('-');
    if (dash == std::string::npos) return odd;
    const auto first = whole_number(std::string_view(text).substr(0, dash));
    const auto last = whole_number(std::string_view(text).substr(dash + 1));
    if (!first || !last || *first > *last) return odd;
    return range(*first, *last, base);
}

/// In the order of the file: scales belong to the i-th listed layer.
Result<std::vector<int>> read_layers(const Json& value, const ModelShape& base) {
    if (value.is_string()) return layers_of_text(value.get<std::string>(), base);
    if (!value.is_array() || value.empty())
        return refuse_config("state.layers is " + short_text(value) + ", not a list of layers or a range");
    std::vector<int> layers;
    for (const Json& layer : value) {
        if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 ||
            layer.get<std::int64_t>() >= base.layer_count())
            return refuse_config("state.layers holds " + short_text(layer) + ", this base has layers 0 to " +
                                 std::to_string(base.layer_count() - 1));
        layers.push_back(layer.get<int>());
        if (std::count(layers.begin(), layers.end(), layers.back()) > 1)
            return refuse_config("state.layers holds " + short_text(layer) + " twice");
    }
    return layers;
}

Result<std::vector<float>> read_scales(const Json& value, std::size_t layers) {
    if (value.is_null()) return std::vector<float>(layers, kDefaultScale);
    const Json list = value.is_array() ? value : Json::array({value});
    std::vector<float> scales;
    for (const Json& scale : list) {
        if (!scale.is_number() || !std::isfinite(static_cast<float>(scale.get<double>())))
            return refuse_config("state.scale holds " + short_text(scale) + ", not a number");
        scales.push_back(static_cast<float>(scale.get<double>()));
    }
    if (!value.is_array()) scales.resize(layers, scales.front());
    if (scales.size() != layers)
        return refuse_config("state.scale has " + std::to_string(scales.size()) + " numbers for " +
                             std::to_string(layers) + " layers");
    return scales;
}

template <class Word, std::size_t Count>
Result<Word> read_word(const Json& value, const char* key, const std::pair<std::string_view, Word> (&words)[Count]) {
    std::string allowed;
    for (const auto& [name, word] : words) {
        if (value == name) return word;
        allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    return refuse_config(std::string(key) + " is " + short_text(value) + ", it may be " + allowed);
}

// ---- the file

std::string tensor_name(int layer, const char* part) { return "layers." + std::to_string(layer) + "." + part; }

/// Looks tensors up, and knows which nobody asked for.
class HeaderTensors {
public:
    explicit HeaderTensors(const SafetensorsHeader& header) : header_(header) {
        for (const StoredTensor& tensor : header.tensors) left_[tensor.name] = &tensor;
    }

    Error refuse(const std::string& fault) const {
        return make_error(Errc::invalid_module, header_.file_name + ": " + fault);
    }

    /// Null when it is not there; a shape with -1 takes any extent of at least 1.
    Result<const StoredTensor*> take(int layer, const char* part, std::vector<std::int64_t> shape) {
        const auto found = left_.find(tensor_name(layer, part));
        if (found == left_.end()) return nullptr;
        const StoredTensor& tensor = *found->second;
        left_.erase(found);
        const bool fits =
            tensor.shape.size() == shape.size() &&
            std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                       [](std::int64_t want, std::int64_t have) { return want < 0 ? have > 0 : want == have; });
        if (!fits) return refuse(tensor.name + " is " + shape_text(tensor.shape) + ", expected " + shape_text(shape));
        if (!has_plain_values(tensor))
            return refuse(tensor.name + ": dtype " + tensor.type_name + " is not supported, only F32, F16 and BF16");
        return &tensor;
    }
    Result<const StoredTensor*> need(int layer, const char* part, std::vector<std::int64_t> shape) {
        auto tensor = take(layer, part, std::move(shape));
        if (tensor && *tensor == nullptr) return refuse(tensor_name(layer, part) + " is missing");
        return tensor;
    }
    const StoredTensor* left_over() const { return left_.empty() ? nullptr : left_.begin()->second; }

private:
    const SafetensorsHeader& header_;
    std::map<std::string, const StoredTensor*> left_;
};

std::uint64_t floats_of(const StoredTensor* tensor) { return tensor == nullptr ? 0 : element_count(*tensor); }

/// Checks one layer's tensors; the floats its vectors will hold.
Result<std::uint64_t> plan_layer(HeaderTensors& tensors, StateLayer& layer, std::int64_t hidden) {
    if (layer.kind == StateKind::vector) {
        const auto vector = tensors.need(layer.layer, "vector", {hidden});
        if (!vector) return vector.error();
        return static_cast<std::uint64_t>(hidden);
    }
    const auto down = tensors.need(layer.layer, "down", {-1, hidden});
    if (!down) return down.error();
    const std::int64_t width = (*down)->shape[0];
    layer.width = static_cast<int>(width);
    const auto up = tensors.take(layer.layer, "up", {hidden, width});
    if (!up) return up.error();
    std::uint64_t floats = 2 * static_cast<std::uint64_t>(width * hidden);
    if (layer.kind == StateKind::linear) return floats;
    const auto down_bias = tensors.take(layer.layer, "down_bias", {width});
    if (!down_bias) return down_bias.error();
    const auto up_bias = tensors.take(layer.layer, "up_bias", {hidden});
    if (!up_bias) return up_bias.error();
    return floats + floats_of(*down_bias) + floats_of(*up_bias);
}

std::vector<float>* place_of(StateLayer& layer, std::string_view part) {
    if (part == "vector") return &layer.vector;
    if (part == "down") return &layer.down;
    if (part == "down_bias") return &layer.down_bias;
    if (part == "up") return &layer.up;
    return &layer.up_bias;
}

}  // namespace

Result<StateConfig> parse_state_config(const OrderedJson& state, const ModelShape& base) {
    if (!state.is_object()) return refuse_config("state is no object");
    for (const auto& [key, value] : state.items())
        if (key != "path" && key != "kind" && key != "layers" && key != "scale" && key != "activation")
            return refuse_config("unknown key " + in_quotes("state." + key));
    StateConfig out;
    auto path = relative_path(member(state, "path"), "state.path");
    if (!path) return path.error();
    out.path = *std::move(path);
    const auto kind = read_word(member(state, "kind"), "state.kind", kKinds);
    if (!kind) return kind.error();
    out.kind = *kind;
    if (const Json& activation = member(state, "activation"); !activation.is_null()) {
        const auto word = read_word(activation, "state.activation", kActivations);
        if (!word) return word.error();
        if (*word != Activation::identity && out.kind != StateKind::bottleneck)
            return refuse_config("state.activation is " + short_text(activation) + ": only a bottleneck has one");
        out.activation = *word;
    }
    const auto layers = read_layers(member(state, "layers"), base);
    if (!layers) return layers.error();
    const auto scales = read_scales(member(state, "scale"), layers->size());
    if (!scales) return scales.error();
    std::vector<std::pair<int, float>> sorted;
    for (std::size_t i = 0; i < layers->size(); ++i) sorted.emplace_back((*layers)[i], (*scales)[i]);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [layer, scale] : sorted) {
        out.layers.push_back(layer);
        out.scales.push_back(scale);
    }
    return out;
}

Result<StatePlan> plan_state(const SafetensorsHeader& header, const StateConfig& config, const ModelShape& base) {
    HeaderTensors tensors(header);
    StatePlan plan;
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        StateLayer& layer = plan.layers.emplace_back();
        layer.layer = config.layers[i];
        layer.kind = config.kind;
        layer.activation = config.activation;
        layer.scale = config.scales[i];
        const auto floats = plan_layer(tensors, layer, base.hidden_size);
        if (!floats) return floats.error();
        plan.parsed_bytes += sizeof(StateLayer) + *floats * sizeof(float);
    }
    if (const StoredTensor* left = tensors.left_over())
        return tensors.refuse("tensor " + in_quotes(left->name) + " belongs to no part of this state");
    return plan;
}

Result<void> read_state(const ReadOnlyFile& file, const SafetensorsHeader& header, const StatePlan& plan,
                        GenerationHash& hash, Module& into) {
    into.states = plan.layers;
    TensorReader reader(file, hash);
    for (const StoredTensor* tensor : in_file_order(header.tensors)) {
        const std::string_view name = tensor->name;
        const auto dot = name.rfind('.');
        for (StateLayer& layer : into.states) {
            if (name.substr(0, dot) != "layers." + std::to_string(layer.layer)) continue;
            std::vector<float>& values = *place_of(layer, name.substr(dot + 1));
            values.resize(element_count(*tensor));
            if (auto done = reader.read(*tensor, 0, values); !done) return done;
        }
    }
    for (StateLayer& layer : into.states)  // without an up of its own, a state uses the transposed down
        if (layer.kind != StateKind::vector && layer.up.empty())
            layer.up = transposed(layer.down, static_cast<std::size_t>(layer.width),
                                  layer.down.size() / static_cast<std::size_t>(layer.width));
    return {};
}

}  // namespace attune
