#include "engine/module/adapter_plan.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/site_input.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

namespace attune {
namespace {

using Kind = AdapterSite::Kind;

constexpr std::string_view kWrappers[] = {"base_layer.", "token_adapter.", "modules_to_save.", "original_module."};

// What whole modules, biases and copies of the base are called; everything else belongs to the adapter's own kind.
bool is_plain(std::string_view parameter) {
    return parameter == "weight" || parameter == "bias" ||
           std::any_of(std::begin(kWrappers), std::end(kWrappers),
                       [&](std::string_view wrapper) { return parameter.starts_with(wrapper); });
}

bool has_own_tensors(const SiteTensors& site) {
    return std::any_of(site.parameters.begin(), site.parameters.end(),
                       [](const auto& entry) { return !is_plain(entry.first); });
}

Result<void> plan_own(SiteInput& input, const PlanContext& context) {
    switch (context.config.type) {
        case PeftType::lora:
            return plan_lora_site(input, context);
        case PeftType::adalora:
            return plan_adalora_site(input, context);
        case PeftType::miss:
            return plan_miss_site(input, context);
        case PeftType::vera:
            return plan_vera_site(input, context);
        case PeftType::loha:
            return plan_loha_site(input, context);
        case PeftType::lokr:
            return plan_lokr_site(input, context);
        case PeftType::oft:
            return plan_oft_site(input, context);
        case PeftType::boft:
            return plan_boft_site(input, context);
        case PeftType::ia3:
            return plan_ia3_site(input, context);
        case PeftType::prefix:
        case PeftType::prompt:
        case PeftType::p_tuning:
            break;  // they sit on no layer: every tensor of one is refused as unclaimed
    }
    return {};
}

Result<void> plan_projection(SiteInput& input, const SiteTensors& tensors, const PlanContext& context) {
    const bool head = input.site().projection == Projection::head;
    if (has_own_tensors(tensors))
        if (auto planned = plan_own(input, context); !planned) return planned;
    if (head) return plan_head_table(input, context);
    if (auto planned = plan_bias(input, context); !planned) return planned;
    return plan_saved(input, context);
}

Result<void> plan_site(const SiteTensors& tensors, const PlanContext& context) {
    SiteInput input(tensors, context);
    const bool embedding = tensors.site.kind == Kind::embedding;
    auto planned = embedding                         ? plan_embedding(input, context)
                   : tensors.site.kind == Kind::norm ? plan_saved(input, context)
                                                     : plan_projection(input, tensors, context);
    if (!planned) return planned;
    if (const std::string_view left = input.unclaimed(); !left.empty())
        return input.refuse("tensor " + in_quotes(left) + ": this kind of adapter has no place for it here");
    return {};
}

// ---- what the config promises

/// The path as the file's names would have it.
std::string file_path(const AdapterSite& site, const AdapterTensors& tensors) {
    std::string path = site_path(site);
    return path.starts_with("model.") ? tensors.trunk + path.substr(6) : path;
}

/// PEFT's rule for modules that are saved whole and so get no adapter: re.match(r"(^|.*\.)NAME($|\..*)", path).
bool is_saved(std::string_view path, const PeftConfig& config) {
    return std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(), [&](const std::string& name) {
        for (auto at = path.find(name); at != std::string_view::npos; at = path.find(name, at + 1)) {
            const auto end = at + name.size();
            if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
        }
        return false;
    });
}

bool is_target(const AdapterSite& site, std::string_view path, const PlanContext& context) {
    const PeftConfig& config = context.config;
    if (is_prompt_learning(config.type) || is_saved(path, config)) return false;
    const bool projection = site.kind == Kind::projection && site.projection != Projection::head;
    if (config.targets && config.targets->all_linear) return projection && config.is_target(path, "");
    if (site.kind == Kind::norm || (site.kind == Kind::embedding && config.type != PeftType::lora)) return false;
    return config.is_target(path, context.base.model_type);
}

std::string target_words(const PeftConfig& config) {
    if (!config.targets) return "PEFT's own choice";
    std::string list;
    for (const std::string& name : config.targets->names) list += (list.empty() ? "" : ", ") + in_quotes(name);
    return list.empty() ? std::string("a pattern") : list;
}

std::vector<AdapterSite> all_sites(const ModelShape& base) {
    std::vector<AdapterSite> sites;
    for (int layer = 0; layer < base.layer_count(); ++layer) {
        for (int i = 0; i < kProjections; ++i)
            sites.push_back({.layer = layer, .projection = static_cast<Projection>(i)});
        for (const NormSite norm : {NormSite::attention, NormSite::mlp, NormSite::query, NormSite::key})
            if (base.model_type == "qwen3" || (norm != NormSite::query && norm != NormSite::key))
                sites.push_back({.kind = Kind::norm, .layer = layer, .norm = norm});
    }
    sites.push_back({.kind = Kind::norm, .norm = NormSite::last});
    sites.push_back({.kind = Kind::embedding});
    sites.push_back({.projection = Projection::head});
    return sites;
}

// Both ways: a promised module without tensors was lost, a module with tensors that the config excludes would change a
// result that PEFT gives without it.
Result<void> check_site(const AdapterSite& site, const PlanContext& context) {
    const auto refuse = [&](const std::string& fault) { return make_error(Errc::invalid_module, fault); };
    const std::string path = file_path(site, context.tensors);
    const auto found = context.tensors.sites.find(site);
    const SiteTensors* tensors = found == context.tensors.sites.end() ? nullptr : &found->second;
    const auto has = [&](std::string_view parameter) { return tensors != nullptr && tensors->find(parameter); };
    const bool new_tokens = has("token_adapter.trainable_tokens_delta");
    const bool own = tensors != nullptr && has_own_tensors(*tensors);
    if (is_target(site, path, context) != own)
        return own ? refuse(context.header.file_name + ": " + path + " has tensors, but target_modules (" +
                            target_words(context.config) + ") does not name it")
                   : refuse("adapter_config.json: target_modules (" + target_words(context.config) + ") names " + path +
                            ", but the file has no tensor for it");
    if (site.kind == Kind::embedding && !context.config.new_tokens.empty() && !new_tokens)
        return refuse("adapter_config.json: trainable_token_indices is set, but the file has no rows for them");
    const std::string* saved = saved_by(path, context.config);
    // A table that was resized is saved whether or not it was trained.
    const bool is_table =
        site.kind == Kind::embedding || (site.kind == Kind::projection && site.projection == Projection::head);
    const bool resized = is_table && context.new_tokens && saved == nullptr;
    if ((saved != nullptr) != has("weight") && !resized)
        return saved == nullptr ? refuse(context.header.file_name + ": " + path +
                                         ".weight is there, but modules_to_save does not name it")
                                : refuse("adapter_config.json: modules_to_save names " + in_quotes(*saved) +
                                         ", but the file has no " + path + ".weight");
    const bool trains_bias = site.kind == Kind::projection && site.projection != Projection::head && saved == nullptr &&
                             context.config.bias != "none" && (context.config.bias == "all" || own);
    if (trains_bias && context.base_values != nullptr &&
        context.base_values->has(base_tensor(site, "bias", context.base)) && !has("bias") && !has("base_layer.bias"))
        return refuse("adapter_config.json: bias is " + in_quotes(context.config.bias) +
                      ", but the file has no bias of " + path);
    return {};
}

Result<void> check_invocation(const PlanContext& context) {
    for (const TokenId id : context.config.invocation)
        if (id >= context.base.vocab_size)
            return make_error(Errc::invalid_module, "adapter_config.json: alora_invocation_tokens names token " +
                                                        std::to_string(id) + ", this base has " +
                                                        std::to_string(context.base.vocab_size));
    return {};
}

// ---- how the module is described

std::string kind_word(const PeftConfig& config) {
    switch (config.type) {
        case PeftType::lora:
            return config.dora ? "dora" : config.invocation.empty() ? "lora" : "alora";
        case PeftType::adalora:
            return "adalora";
        case PeftType::miss:
            return "miss";
        case PeftType::vera:
            return "vera";
        case PeftType::loha:
            return "loha";
        case PeftType::lokr:
            return "lokr";
        case PeftType::oft:
            return "oft";
        case PeftType::boft:
            return "boft";
        case PeftType::ia3:
            return "ia3";
        case PeftType::prefix:
            return "prefix";
        case PeftType::prompt:
            return "prompt";
        case PeftType::p_tuning:
            break;
    }
    return "p_tuning";
}

/// The last word of each touched module's path, in table order.
std::vector<std::string> target_names(const AdapterTensors& tensors) {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (int i = 0; i <= kProjections; ++i)
        for (const auto& [site, unused] : tensors.sites)
            if (site.kind == Kind::projection && static_cast<int>(site.projection) == i)
                add(std::string(projection_name(site.projection)));
    for (const auto& [site, unused] : tensors.sites) {
        if (site.kind == Kind::projection) continue;
        const std::string path = site_path(site);
        add(path.substr(path.rfind('.') + 1));
    }
    return names;
}

std::uint64_t parsed_bytes(const SafetensorsHeader& header, const AdapterPlan& plan) {
    std::uint64_t bytes = plan.parts.size() * (sizeof(LowRankPair) + sizeof(OutputTerm));
    for (const StoredTensor& tensor : header.tensors) {
        if (plan.streams.contains(&tensor)) continue;
        std::uint64_t count = 1;
        for (const std::int64_t extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
        bytes += count * kFloatBytes;
    }
    for (const PlannedPart& part : plan.parts) bytes += part.made_bytes;
    return bytes;
}

}  // namespace

const std::string* saved_by(std::string_view path, const PeftConfig& config) {
    for (const std::string& name : config.modules_to_save)
        if (!name.empty() && path.ends_with(name)) return &name;
    return nullptr;
}

bool AdapterPlan::needs_base() const {
    return std::any_of(parts.begin(), parts.end(), [](const PlannedPart& part) { return part.needs_base; });
}

Result<AdapterPlan> plan_adapter(const SafetensorsHeader& header, const PeftConfig& config, const ModelShape& base,
                                 int max_rank, const BaseValues* base_values) {
    const auto tensors = sort_adapter_tensors(header, base);
    if (!tensors) return tensors.error();
    if (header.tensors.empty())
        return make_error(Errc::invalid_module,
                          header.file_name + ": it holds no tensor: no module of this base is adapted");
    AdapterPlan plan;
    plan.kind = kind_word(config);
    plan.invocation = config.invocation;
    plan.added_ids = rows_beyond_base(*tensors, base);
    std::shared_ptr<NewTokens> new_tokens;
    if (plan.added_ids > 0) new_tokens = std::make_shared<NewTokens>(NewTokens{plan.added_ids, {}, {}});
    const PlanContext context{header, config, base, max_rank, base_values, *tensors, plan, new_tokens};
    for (const auto& [name, tensor] : tensors->shared)
        if ((name == "prompt_embeddings") != is_prompt_learning(config.type) ||
            (name != "prompt_embeddings" && config.type != PeftType::vera))
            return make_error(Errc::invalid_module, header.file_name + ": tensor " + in_quotes(tensor->name) +
                                                        ": this kind of adapter has no place for it");
    for (const auto& [site, site_tensors] : tensors->sites)
        if (auto planned = plan_site(site_tensors, context); !planned) return planned.error();
    if (is_prompt_learning(config.type))
        if (auto planned = plan_prompt(context); !planned) return planned.error();
    for (const AdapterSite& site : all_sites(base))
        if (auto kept = check_site(site, context); !kept) return kept.error();
    if (auto planned = plan_new_rows(context); !planned) return planned.error();
    if (auto known = check_invocation(context); !known) return known.error();
    if (plan.parts.empty())
        return make_error(Errc::invalid_module, header.file_name + ": no module of this base is adapted");
    plan.targets = target_names(*tensors);
    plan.parsed_bytes = parsed_bytes(header, plan);
    return plan;
}

}  // namespace attune
