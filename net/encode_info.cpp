#include "net/encode_info.hpp"

#include "net/json_text.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace attune {
namespace {

namespace json = boost::json;

// boost::json takes strings as they are; names and texts from the house may hold anything.
json::string text(std::string_view bytes) {
    return json::string(is_valid_utf8(bytes) ? std::string(bytes) : lossy_utf8(bytes));
}

json::value optional_text(const std::optional<std::string>& value) {
    return value ? json::value(text(*value)) : json::value(nullptr);
}

json::object permission(const std::string& id, std::int64_t created) {
    return {{"id", text("modelperm-" + id)},
            {"object", "model_permission"},
            {"created", created},
            {"allow_create_engine", false},
            {"allow_sampling", true},
            {"allow_logprobs", true},
            {"allow_search_indices", false},
            {"allow_view", true},
            {"allow_fine_tuning", false},
            {"organization", "*"},
            {"group", nullptr},
            {"is_blocking", false}};
}

json::object base_card(const ServerInfo& info) {
    return {{"id", text(info.base_id)},
            {"object", "model"},
            {"created", info.created},
            {"owned_by", "attune"},
            {"root", text(info.base_id)},
            {"parent", nullptr},
            {"max_model_len", info.max_model_len},
            {"permission", json::array{permission(info.base_id, info.created)}}};
}

json::object module_card(const ServerInfo& info, const ModuleStatus& module) {
    return {{"id", text(module.name)},
            {"object", "model"},
            {"created", module.created},
            {"owned_by", "attune"},
            {"root", text(module.name)},
            {"parent", text(info.base_id)},
            {"max_model_len", nullptr},
            {"adapter_generation", optional_text(module.generation)},
            {"permission", json::array{permission(module.name, module.created)}}};
}

// A failed module would only answer with its reason; /v1/modules tells of it.
bool is_offered(const ModuleStatus& module) { return module.tier != Tier::failed; }

const char* tier_word(Tier tier) {
    switch (tier) {
        case Tier::cold:
            return "cold";
        case Tier::loading:
            return "loading";
        case Tier::host:
            return "host";
        case Tier::resident:
            return "resident";
        case Tier::failed:
            return "failed";
    }
    return "cold";
}

const char* combine_word(Combine combine) {
    switch (combine) {
        case Combine::sequence:
            return "sequence";
        case Combine::parallel:
            return "parallel";
        case Combine::interpolate:
            return "interpolate";
    }
    return "sequence";
}

json::object module_json(const ModuleStatus& module) {
    json::array targets;
    for (const auto& target : module.targets) targets.emplace_back(text(target));
    json::array layers;
    for (std::size_t layer = 0; layer < module.rank_and_scale.size(); ++layer) {
        const auto& [rank, scale] = module.rank_and_scale[layer];
        if (rank == 0) continue;
        layers.emplace_back(json::object{{"layer", layer}, {"rank", rank}, {"scale", scale}});
    }
    json::object out{{"name", text(module.name)},
                     {"kind", text(module.kind)},
                     {"tier", tier_word(module.tier)},
                     {"generation", optional_text(module.generation)},
                     {"bytes", module.bytes},
                     {"rank", module.rank},
                     {"layers", std::move(layers)},
                     {"targets", std::move(targets)},
                     {"base_match", text(module.base_match)},
                     {"hits_per_minute", module.hits_per_minute},
                     {"pinned", module.pinned},
                     {"leases", module.leases},
                     {"last_error", optional_text(module.last_error)},
                     {"created", module.created}};
    if (module.combine) {
        json::array members;
        for (const auto& member : module.members)
            members.emplace_back(json::object{{"name", text(member.name)}, {"weight", member.weight}});
        out["members"] = std::move(members);
        out["combine"] = combine_word(*module.combine);
    }
    if (!module.owner.empty()) out["owner"] = text(module.owner);
    return out;
}

}  // namespace

std::string models_body(const ServerInfo& info, const std::vector<ModuleStatus>& modules) {
    json::array data;
    data.emplace_back(base_card(info));
    for (const auto& module : modules)
        if (is_offered(module)) data.emplace_back(module_card(info, module));
    return to_json(json::object{{"object", "list"}, {"data", std::move(data)}});
}

std::string model_card(const ServerInfo& info, const std::vector<ModuleStatus>& modules, const std::string& id) {
    if (id == info.base_id) return to_json(base_card(info));
    for (const auto& module : modules)
        if (module.name == id && is_offered(module)) return to_json(module_card(info, module));
    return {};
}

std::string module_object(const ModuleStatus& module) { return to_json(module_json(module)); }

std::string modules_body(const std::vector<ModuleStatus>& modules) {
    json::array data;
    for (const auto& module : modules) data.emplace_back(module_json(module));
    return to_json(json::object{{"object", "list"}, {"data", std::move(data)}});
}

std::string audit_body(const AuditStatus& audit) {
    json::array damaged;
    for (const auto& tensor : audit.damaged) damaged.emplace_back(text(tensor));
    return to_json(json::object{{"ok", audit.ok},
                                {"state", text(audit.state)},
                                {"checkpoint", text(audit.checkpoint)},
                                {"expected", text(audit.expected)},
                                {"measured", text(audit.measured)},
                                {"runs", audit.runs},
                                {"alarms", audit.alarms},
                                {"damaged", std::move(damaged)}});
}

std::string tokenize_body(const TokenizeResult& result) {
    std::string out = R"({"tokens":[)";
    for (const TokenId id : result.tokens) {
        if (out.back() != '[') out += ',';
        append_json_number(out, std::int64_t{id});
    }
    out += R"(],"count":)";
    append_json_number(out, static_cast<std::int64_t>(result.tokens.size()));
    out += R"(,"max_model_len":)";
    append_json_number(out, std::int64_t{result.max_model_len});
    out += R"(,"token_strs":)";
    if (result.texts) {
        out += '[';
        for (const std::string& one : *result.texts) {
            if (out.back() != '[') out += ',';
            append_json_string(out, one);
        }
        out += ']';
    } else {
        out += "null";
    }
    out += '}';
    return out;
}

std::string detokenize_body(const std::string& prompt) {
    std::string out = R"({"prompt":)";
    append_json_string(out, prompt);
    out += '}';
    return out;
}

}  // namespace attune
