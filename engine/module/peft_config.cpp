#include "engine/module/peft_config.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/json_text.hpp"
#include "engine/module/peft_keys.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune {
namespace {

using Json = OrderedJson;

Error refuse(const std::string& fault) { return make_error(Errc::invalid_module, "adapter_config.json: " + fault); }

struct TypeName {
    std::string_view name;
    PeftType type;
};

constexpr TypeName kTypes[] = {{"LORA", PeftType::lora},
                               {"ADALORA", PeftType::adalora},
                               {"MISS", PeftType::miss},
                               {"BONE", PeftType::miss},
                               {"VERA", PeftType::vera},
                               {"LOHA", PeftType::loha},
                               {"LOKR", PeftType::lokr},
                               {"OFT", PeftType::oft},
                               {"BOFT", PeftType::boft},
                               {"IA3", PeftType::ia3},
                               {"PREFIX_TUNING", PeftType::prefix},
                               {"PROMPT_TUNING", PeftType::prompt},
                               {"P_TUNING", PeftType::p_tuning}};

Result<PeftType> read_type(const Json& config) {
    const Json& type = member(config, "peft_type");
    if (!type.is_string()) return refuse("peft_type is missing");
    const auto& name = type.get_ref<const std::string&>();
    const auto known =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeName& row) { return row.name == name; });
    if (known == std::end(kTypes)) return refuse("peft_type " + in_quotes(name) + " is not supported");
    const Json& task = member(config, "task_type");
    if (!task.is_null() && task != "CAUSAL_LM") return refuse("task_type " + short_text(task) + " is not CAUSAL_LM");
    return known->type;
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
    for (const auto& [key, into] :
         {std::pair{"target_modules", &out.targets}, {"feedforward_modules", &out.feedforward}}) {
        const Json& value = member(config, key);
        if (value.is_null()) continue;
        auto names = read_names(value, key);
        if (!names) return names.error();
        if (into == &out.targets && !names->pattern && !names->all_linear && names->names.empty() &&
            out.new_tokens.empty())
            return refuse("target_modules is empty");
        *into = *std::move(names);
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
    if (out.targets && out.targets->pattern && (out.layers || !out.layers_patterns.empty()))
        return refuse("layers_to_transform and layers_pattern need target_modules to be a list");
    return {};
}

Result<void> read_scale(const Json& config, PeftConfig& out) {
    if (const Json& rank = member(config, "r"); !rank.is_null() && out.type != PeftType::oft) {
        const auto value = read_rank(rank, "r");
        if (!value) return value.error();
        out.rank = *value;
    }
    const char* alpha_key = out.type == PeftType::loha || out.type == PeftType::lokr ? "alpha" : "lora_alpha";
    if (const Json& alpha = member(config, alpha_key); !alpha.is_null()) {
        const auto value = read_alpha(alpha, alpha_key);
        if (!value) return value.error();
        out.alpha = *value;
    }
    for (const auto& [key, table] :
         {std::pair{"rank_pattern", &out.rank_pattern}, {"alpha_pattern", &out.alpha_pattern}}) {
        // AdaLoRA keeps masks of its ranks there.
        if (out.type == PeftType::adalora && table == &out.rank_pattern) continue;
        auto patterns = read_patterns(config, key, table == &out.rank_pattern);
        if (!patterns) return patterns.error();
        *table = *std::move(patterns);
    }
    return {};
}

Result<std::vector<TokenId>> read_ids(const Json& value, const std::string& key) {
    std::vector<TokenId> ids;
    if (!value.is_array()) return refuse(key + " is " + short_text(value) + ", not a list of token ids");
    for (const Json& id : value) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
            id.get<std::int64_t>() > std::numeric_limits<TokenId>::max())
            return refuse(key + " holds " + short_text(id) + ", not a token id");
        ids.push_back(id.get<TokenId>());
    }
    return ids;
}

Result<void> read_tokens(const Json& config, PeftConfig& out) {
    if (const Json& value = member(config, "alora_invocation_tokens"); !is_empty(value)) {
        auto ids = read_ids(value, "alora_invocation_tokens");
        if (!ids) return ids.error();
        out.invocation = *std::move(ids);
    }
    const Json& value = member(config, "trainable_token_indices");
    if (is_empty(value)) return {};
    const Json* list = &value;
    if (value.is_object()) {
        for (const auto& [layer, unused] : value.items())
            if (layer != "embed_tokens" && layer != "model.embed_tokens")
                return refuse("trainable_token_indices of " + in_quotes(layer) + ": only embed_tokens is supported");
        if (value.size() != 1) return refuse("trainable_token_indices names embed_tokens twice");
        list = &value.begin().value();
    }
    auto ids = read_ids(*list, "trainable_token_indices");
    if (!ids) return ids.error();
    out.new_tokens = *std::move(ids);
    auto sorted = out.new_tokens;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        return refuse("trainable_token_indices names a token twice");
    return {};
}

Result<void> read_miss(const Json& config, PeftConfig& out) {
    const Json& mode = member(config, "init_weights");
    if (mode == "bat") {
        out.miss = MissMode::bat;
    } else if (mode == "mini") {
        out.miss = MissMode::mini;
    } else if (!mode.is_null() && !mode.is_boolean()) {
        return refuse("init_weights " + short_text(mode) + " is no mode of MiSS (true, false, bat, mini)");
    }
    if (const Json& rank = member(config, "r"); rank.is_null()) out.rank = 64;
    if (const Json& rank = member(config, "mini_r"); !rank.is_null()) {
        const auto value = read_rank(rank, "mini_r");
        if (!value) return value.error();
        out.mini_rank = *value;
    }
    return {};
}

Result<void> read_oft(const Json& config, PeftConfig& out) {
    if (const Json& value = member(config, "use_cayley_neumann"); !value.is_null()) {
        const auto flag = read_flag(config, "use_cayley_neumann");
        if (!flag) return flag.error();
        out.cayley_neumann = *flag;
    }
    if (const Json& value = member(config, "num_cayley_neumann_terms"); !value.is_null()) {
        const auto terms = read_rank(value, "num_cayley_neumann_terms");
        if (!terms) return terms.error();
        if (*terms < 2 || *terms > 64)
            return refuse("num_cayley_neumann_terms is " + short_text(value) + ", it may be 2 to 64");
        out.cayley_terms = *terms;
    }
    const auto share = read_flag(config, "block_share");
    if (!share) return share.error();
    out.block_share = *share;
    return {};
}

Result<void> read_prompt(const Json& config, PeftConfig& out) {
    const auto tokens = read_rank(member(config, "num_virtual_tokens"), "num_virtual_tokens");
    if (!tokens) return tokens.error();
    out.virtual_tokens = *tokens;
    for (const auto& [key, into] : {std::pair{"token_dim", &out.prompt_width}, {"num_layers", &out.prompt_layers}}) {
        const Json& value = member(config, key);
        if (value.is_null()) continue;
        const auto number = read_rank(value, key);
        if (!number) return number.error();
        *into = *number;
    }
    const Json& parts = member(config, "num_transformer_submodules");
    if (!parts.is_null() && parts != 1)
        return refuse("num_transformer_submodules is " + short_text(parts) + ": only decoders are supported");
    return {};
}

Result<void> read_kind(const Json& config, PeftConfig& out) {
    if (out.type == PeftType::vera) {
        const Json& saved = member(config, "save_projection");
        if (!saved.is_null() && saved != true)
            return refuse("save_projection is " + short_text(saved) +
                          ": projections that have to be drawn again by a random generator are not portable");
        if (member(config, "r").is_null()) out.rank = 256;
    }
    if (out.type == PeftType::miss) return read_miss(config, out);
    if (out.type == PeftType::oft) return read_oft(config, out);
    if (is_prompt_learning(out.type)) return read_prompt(config, out);
    return {};
}

Result<void> read_bias(const Json& config, PeftConfig& out) {
    const Json& bias = member(config, "bias");
    if (is_empty(bias) || bias == "none") return {};
    if (!bias.is_string()) return refuse("bias is " + short_text(bias) + ", not a word");
    out.bias = bias.get<std::string>();
    if (out.bias != "all" && !out.bias.ends_with("_only"))
        return refuse("bias is " + short_text(bias) + ", it may be none, all or lora_only");
    return {};
}

}  // namespace

Result<PeftConfig> parse_peft_config(std::span<const std::byte> text) {
    const auto config = parse_json_object(text, "adapter_config.json");
    if (!config) return config.error();
    PeftConfig out;
    const auto type = read_type(*config);
    if (!type) return type.error();
    out.type = *type;
    if (auto keys = check_peft_keys(*config, out.type); !keys) return keys.error();
    if (auto init = check_init(member(*config, "init_lora_weights")); !init) return init.error();
    for (const auto& [key, flag] : {std::pair{"use_rslora", &out.rslora},
                                    {"use_dora", &out.dora},
                                    {"lora_bias", &out.lora_bias},
                                    {"ensure_weight_tying", &out.tied_saves}}) {
        const auto value = read_flag(*config, key);
        if (!value) return value.error();
        *flag = *value;
    }
    for (const auto& read : {read_scale, read_tokens, read_kind, read_bias, read_targets, read_layers})
        if (auto done = read(*config, out); !done) return done.error();
    return out;
}

}  // namespace attune
