#include "engine/module/peft_config.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/json_text.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace attune {
namespace {

using Json = OrderedJson;

Error refuse(const std::string& fault) { return make_error(Errc::invalid_module, "adapter_config.json: " + fault); }

enum class Rule {
    read,     // used below
    ignored,  // training only, or of no effect once the tensors are checked
    refused,  // changes the result: allowed only as null, false or empty
};

struct KeyRule {
    std::string_view key;
    Rule rule;
    std::string_view reason = {};
};

constexpr KeyRule kKeys[] = {
    {"peft_type", Rule::read},
    {"task_type", Rule::read},
    {"r", Rule::read},
    {"lora_alpha", Rule::read},
    {"use_rslora", Rule::read},
    {"rank_pattern", Rule::read},
    {"alpha_pattern", Rule::read},
    {"target_modules", Rule::read},
    {"exclude_modules", Rule::read},
    {"modules_to_save", Rule::read},
    {"layers_to_transform", Rule::read},
    {"layers_pattern", Rule::read},
    {"init_lora_weights", Rule::read},
    {"use_dora", Rule::read},
    {"lora_bias", Rule::read},
    {"bias", Rule::read},
    // How the adapter was trained, saved or found.
    {"auto_mapping", Rule::ignored},
    {"base_model_name_or_path", Rule::ignored},
    {"revision", Rule::ignored},
    {"peft_version", Rule::ignored},
    {"inference_mode", Rule::ignored},
    {"lora_dropout", Rule::ignored},
    {"megatron_core", Rule::ignored},
    {"loftq_config", Rule::ignored},
    {"eva_config", Rule::ignored},
    {"corda_config", Rule::ignored},
    {"lora_ga_config", Rule::ignored},
    {"velora_config", Rule::ignored},
    {"qalora_group_size", Rule::ignored},
    {"runtime_config", Rule::ignored},
    {"ensure_weight_tying", Rule::ignored},  // of embeddings and heads only, which are refused
    {"trainable_token_indices", Rule::refused, "new tokens are not supported yet"},
    {"alora_invocation_tokens", Rule::refused, "aLoRA is not supported yet"},
    {"invocation_string", Rule::refused, "aLoRA is not supported yet"},
    {"alora_invocation_string", Rule::refused, "aLoRA is not supported yet"},
    {"target_parameters", Rule::refused, "adapters of bare parameters are not supported"},
    {"layer_replication", Rule::refused, "it changes the depth of the base"},
    {"fan_in_fan_out", Rule::refused, "transposed layers are not supported"},
    {"megatron_config", Rule::refused, "Megatron layers are not supported"},
    {"kasa_config", Rule::refused, "it changes the base"},
    {"use_bdlora", Rule::refused, "block-diagonal LoRA is not supported"},
    {"arrow_config", Rule::refused, "Arrow routing is not supported"},
    {"monteclora_config", Rule::refused, "MonteCLoRA is not supported"},
    {"use_qalora", Rule::refused, "QA-LoRA is not supported"},
    {"auto_map", Rule::refused, "code from a module is never run"},
};

Result<void> check_keys(const Json& config) {
    for (const auto& [key, value] : config.items()) {
        const auto known =
            std::find_if(std::begin(kKeys), std::end(kKeys), [&](const KeyRule& rule) { return rule.key == key; });
        if (known == std::end(kKeys)) {
            if (!is_empty(value)) return refuse("unknown key " + in_quotes(key) + " could change the result");
        } else if (known->rule == Rule::refused && !is_empty(value)) {
            return refuse(key + " is set: " + std::string(known->reason));
        }
    }
    return {};
}

Result<void> check_type(const Json& config) {
    const Json& type = member(config, "peft_type");
    if (!type.is_string()) return refuse("peft_type is missing");
    const auto& name = type.get_ref<const std::string&>();
    if (name != "LORA") return refuse("peft_type " + in_quotes(name) + " is not supported yet");
    const Json& task = member(config, "task_type");
    if (!task.is_null() && task != "CAUSAL_LM") return refuse("task_type " + short_text(task) + " is not CAUSAL_LM");
    return {};
}

// Some ways to start the training move weights of the base into the adapter; without that base the file is only half.
Result<void> check_init(const Json& init) {
    if (init.is_null() || init.is_boolean()) return {};
    for (const char* harmless : {"gaussian", "eva", "orthogonal"})
        if (init == harmless) return {};
    return refuse("init_lora_weights " + short_text(init) + " belongs to a changed base");
}

Result<bool> read_flag(const Json& config, const char* key) {
    const Json& value = member(config, key);
    if (value.is_null()) return false;
    if (!value.is_boolean()) return refuse(std::string(key) + " is " + short_text(value) + ", not true or false");
    return value.get<bool>();
}

Result<int> read_rank(const Json& value, const std::string& who) {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
        value.get<std::int64_t>() > std::numeric_limits<int>::max())
        return refuse(who + " is " + short_text(value) + ", not a positive whole number");
    return value.get<int>();
}

Result<double> read_alpha(const Json& value, const std::string& who) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
        return refuse(who + " is " + short_text(value) + ", not a number");
    return value.get<double>();
}

Result<PatternTable> read_patterns(const Json& config, const char* key, bool ranks) {
    PatternTable table;
    const Json& value = member(config, key);
    if (is_empty(value)) return table;
    if (!value.is_object()) return refuse(std::string(key) + " is no object");
    for (const auto& [name, number] : value.items()) {
        const std::string who = std::string(key) + " of " + in_quotes(name);
        auto pattern = PathPattern::compile("(.*\\.)?(" + name + ")$");
        if (!pattern) return refuse(std::string(key) + ": " + pattern.error().message);
        double read = 0;
        if (ranks) {
            const auto rank = read_rank(number, who);
            if (!rank) return rank.error();
            read = *rank;
        } else {
            const auto alpha = read_alpha(number, who);
            if (!alpha) return alpha.error();
            read = *alpha;
        }
        table.rows.emplace_back(*std::move(pattern), read);
    }
    return table;
}

bool is_all_linear(const std::string& text) {
    static constexpr std::string_view kName = "all-linear";
    return std::equal(text.begin(), text.end(), kName.begin(), kName.end(),
                      [](unsigned char a, char b) { return std::tolower(a) == b; });
}

Result<std::vector<std::string>> read_strings(const Json& value, const std::string& key) {
    std::vector<std::string> names;
    if (is_empty(value)) return names;
    if (!value.is_array()) return refuse(key + " is " + short_text(value) + ", not a list of names");
    for (const Json& name : value) {
        if (!name.is_string()) return refuse(key + " holds " + short_text(name) + ", not a name");
        names.push_back(name.get<std::string>());
    }
    return names;
}

Result<ModuleNames> read_names(const Json& value, const std::string& key) {
    ModuleNames names;
    if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        if (key == "target_modules" && is_all_linear(text)) {
            names.all_linear = true;
            return names;
        }
        auto pattern = PathPattern::compile(text);
        if (!pattern) return refuse(key + ": " + pattern.error().message);
        names.pattern = *std::move(pattern);
        return names;
    }
    auto list = read_strings(value, key);
    if (!list) return list.error();
    names.names = *std::move(list);
    return names;
}

Result<void> read_targets(const Json& config, PeftConfig& out) {
    const Json& targets = member(config, "target_modules");
    if (targets.is_null()) {
        out.targets.names = {"q_proj", "v_proj"};  // PEFT's own choice for llama, mistral and qwen
    } else {
        auto names = read_names(targets, "target_modules");
        if (!names) return names.error();
        out.targets = *std::move(names);
        if (!out.targets.pattern && !out.targets.all_linear && out.targets.names.empty())
            return refuse("target_modules is empty");
    }
    const Json& excluded = member(config, "exclude_modules");
    if (!is_empty(excluded)) {
        auto names = read_names(excluded, "exclude_modules");
        if (!names) return names.error();
        out.excluded = *std::move(names);
    }
    auto saved = read_strings(member(config, "modules_to_save"), "modules_to_save");
    if (!saved) return saved.error();
    out.modules_to_save = *std::move(saved);
    return {};
}

Result<void> read_layers(const Json& config, PeftConfig& out) {
    const Json& layers = member(config, "layers_to_transform");
    const Json& pattern = member(config, "layers_pattern");
    if (pattern.is_string() && !pattern.get_ref<const std::string&>().empty()) {
        out.layers_patterns = {pattern.get<std::string>()};
    } else {
        auto names = read_strings(pattern, "layers_pattern");
        if (!names) return names.error();
        out.layers_patterns = *std::move(names);
    }
    for (const std::string& name : out.layers_patterns)
        if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") !=
            std::string::npos)
            return refuse("layers_pattern " + in_quotes(name) + " is no plain name");
    if (!layers.is_null() && layers != Json::array()) {
        out.layers.emplace();
        for (const Json& layer : layers.is_array() ? layers : Json::array({layers})) {
            if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 ||
                layer.get<std::int64_t>() > std::numeric_limits<int>::max())
                return refuse("layers_to_transform holds " + short_text(layer) + ", not a layer number");
            out.layers->push_back(layer.get<int>());
        }
    }
    if (out.targets.pattern && (out.layers || !out.layers_patterns.empty()))
        return refuse("layers_to_transform and layers_pattern need target_modules to be a list");
    return {};
}

bool name_matches(std::string_view path, std::string_view name) {
    return path == name ||
           (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
}

// The first path part of digits that stands after `container` and before another part. Without a container at least two
// parts stand before it (PEFT's `.*?\.[^.]*\.(\d+)\.`).
std::optional<int> layer_number(std::string_view path, std::string_view container) {
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
        const std::size_t end = path.find('.', dot + 1);
        if (end == std::string_view::npos) break;
        const std::string_view before = path.substr(0, dot);
        const std::string_view part = path.substr(dot + 1, end - dot - 1);
        const bool digits = !part.empty() && part.size() < 9 &&
                            std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
        const bool placed =
            container.empty() ? before.find('.') != std::string_view::npos : name_matches(before, container);
        if (digits && placed) return std::stoi(std::string(part));
    }
    return std::nullopt;
}

}  // namespace

double PatternTable::lookup(std::string_view path, double otherwise) const {
    for (const auto& [pattern, value] : rows)
        if (pattern.match(path)) return value;
    return otherwise;
}

bool ModuleNames::contains(std::string_view path) const {
    if (all_linear) return true;
    if (pattern) return pattern->full_match(path);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name_matches(path, name); });
}

double PeftConfig::scale(std::string_view path, int true_rank) const {
    const double layer_alpha = alpha_pattern.lookup(path, alpha);
    return layer_alpha / (rslora ? std::sqrt(static_cast<double>(true_rank)) : true_rank);
}

bool PeftConfig::targets_layer(std::string_view path) const {
    if (!layers) return true;
    std::optional<int> number;
    if (layers_patterns.empty()) number = layer_number(path, "");
    for (const std::string& container : layers_patterns) {
        number = layer_number(path, container);
        if (number) break;
    }
    return number && std::find(layers->begin(), layers->end(), *number) != layers->end();
}

bool PeftConfig::is_target(std::string_view path) const {
    return !(excluded && excluded->contains(path)) && targets.contains(path) && targets_layer(path);
}

Result<PeftConfig> parse_peft_config(std::span<const std::byte> text) {
    const auto config = parse_json_object(text, "adapter_config.json");
    if (!config) return config.error();
    PeftConfig out;
    if (auto type = check_type(*config); !type) return type.error();
    if (auto keys = check_keys(*config); !keys) return keys.error();
    if (auto init = check_init(member(*config, "init_lora_weights")); !init) return init.error();
    for (const auto& [key, flag] :
         {std::pair{"use_rslora", &out.rslora}, {"use_dora", &out.dora}, {"lora_bias", &out.bias}}) {
        const auto value = read_flag(*config, key);
        if (!value) return value.error();
        *flag = *value;
    }
    if (out.bias) out.bias_word = "lora_bias is true";
    if (const Json& bias = member(*config, "bias"); !bias.is_null() && bias != "none") {
        out.bias = true;
        out.bias_word = "bias is " + short_text(bias);
    }
    if (const Json& rank = member(*config, "r"); !rank.is_null()) {
        const auto value = read_rank(rank, "r");
        if (!value) return value.error();
        out.rank = *value;
    }
    if (const Json& alpha = member(*config, "lora_alpha"); !alpha.is_null()) {
        const auto value = read_alpha(alpha, "lora_alpha");
        if (!value) return value.error();
        out.alpha = *value;
    }
    for (const auto& [key, table] :
         {std::pair{"rank_pattern", &out.rank_pattern}, {"alpha_pattern", &out.alpha_pattern}}) {
        auto patterns = read_patterns(*config, key, table == &out.rank_pattern);
        if (!patterns) return patterns.error();
        *table = *std::move(patterns);
    }
    if (auto targets = read_targets(*config, out); !targets) return targets.error();
    if (auto layers = read_layers(*config, out); !layers) return layers.error();
    return out;
}

}  // namespace attune
