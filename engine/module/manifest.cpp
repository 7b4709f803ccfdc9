#include "engine/module/manifest.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/json_text.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace attune {
namespace {

using Json = OrderedJson;

Error refuse(const std::string& fault) { return make_error(Errc::invalid_module, "module_config.json: " + fault); }

Result<void> only_keys(const Json& object, const std::string& where, std::initializer_list<std::string_view> allowed) {
    for (const auto& [key, value] : object.items())
        if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
            return refuse("unknown key " + in_quotes(where.empty() ? key : where + "." + key));
    return {};
}

Result<void> read_text(const Json& object, const char* key, std::string& out) {
    const Json& value = member(object, key);
    if (value.is_null()) return {};
    if (!value.is_string()) return refuse(std::string(key) + " is " + short_text(value) + ", not a text");
    out = value.get<std::string>();
    return {};
}

Result<void> read_texts(const Json& object, const char* key, std::vector<std::string>& out) {
    const Json& value = member(object, key);
    if (value.is_null()) return {};
    const bool good =
        value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& text) { return text.is_string(); });
    if (!good) return refuse("routing." + std::string(key) + " is no list of texts");
    out = value.get<std::vector<std::string>>();
    return {};
}

Result<double> read_weight(const Json& value, const std::string& who) {
    constexpr double kLargest = 100;
    if (value.is_null()) return 1.0;
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kLargest))
        return refuse(who + " is " + short_text(value) + ", not a number from -100 to 100");
    return value.get<double>();
}

Result<void> read_members(const Json& manifest, Manifest& out) {
    const Json& members = member(manifest, "members");
    if (const Json& combine = member(manifest, "combine"); !combine.is_null()) {
        if (is_empty(members) && combine != "sequence") return refuse("combine is for packages with members only");
        const auto words = {std::pair{"sequence", Combine::sequence},
                            {"parallel", Combine::parallel},
                            {"interpolate", Combine::interpolate}};
        const auto found =
            std::find_if(words.begin(), words.end(), [&](const auto& row) { return combine == row.first; });
        if (found == words.end())
            return refuse("combine is " + short_text(combine) + ", it may be sequence, parallel or interpolate");
        out.combine = found->second;
    }
    if (is_empty(members)) return {};
    if (!members.is_array()) return refuse("members is no list");
    for (const char* part : {"adapter", "state", "requires", "order"})
        if (!is_empty(member(manifest, part)))
            return refuse("members and " + std::string(part) +
                          " exclude each other: a composition has no parts of its own");
    for (const Json& one : members) {
        if (!one.is_object()) return refuse("members holds " + short_text(one) + ", not {name, weight}");
        if (auto keys = only_keys(one, "members", {"name", "weight"}); !keys) return keys;
        WeightedModule wanted;
        if (auto read = read_text(one, "name", wanted.name); !read) return read;
        if (wanted.name.empty() || wanted.name == out.name) return refuse("members has an entry without a usable name");
        for (const WeightedModule& other : out.members)
            if (other.name == wanted.name) return refuse("members names " + in_quotes(wanted.name) + " twice");
        const auto weight = read_weight(member(one, "weight"), "the weight of member " + in_quotes(wanted.name));
        if (!weight) return weight.error();
        wanted.weight = *weight;
        out.members.push_back(std::move(wanted));
    }
    return {};
}

Result<void> read_requirements(const Json& manifest, Manifest& out) {
    const Json& list = member(manifest, "requires");
    if (is_empty(list)) return {};
    if (!list.is_array()) return refuse("requires is no list");
    for (const Json& one : list) {
        if (!one.is_string()) return refuse("requires holds " + short_text(one) + ", not a name or name@version");
        const auto& text = one.get_ref<const std::string&>();
        const auto at = text.find('@');
        Requirement wanted{text.substr(0, at), at == std::string::npos ? "" : text.substr(at + 1)};
        if (wanted.name.empty() || (at != std::string::npos && wanted.pin.empty()))
            return refuse("requires holds " + short_text(one) + ", not a name or name@version");
        if (wanted.name == out.name) return refuse("requires names the module itself, " + in_quotes(out.name));
        out.needs.push_back(std::move(wanted));
    }
    return {};
}

Result<void> read_order(const Json& manifest, Manifest& out) {
    const Json& order = member(manifest, "order");
    if (order.is_null()) return {};
    constexpr std::int64_t kLargest = 1'000'000;
    if (!order.is_number_integer() || std::abs(order.get<std::int64_t>()) > kLargest)
        return refuse("order is " + short_text(order) + ", not a whole number");
    out.order = order.get<int>();
    return {};
}

Result<void> read_adapter(const Json& manifest, Manifest& out) {
    const Json& adapter = member(manifest, "adapter");
    if (adapter.is_null()) return {};
    if (!adapter.is_object()) return refuse("adapter is no object");
    if (auto keys = only_keys(adapter, "adapter", {"path", "scale"}); !keys) return keys.error();
    auto path = relative_path(member(adapter, "path"), "adapter.path");
    if (!path) return path.error();
    out.adapter_path = *std::move(path);
    const Json& scale = member(adapter, "scale");
    if (scale.is_null()) return {};
    if (!scale.is_number() || !std::isfinite(static_cast<float>(scale.get<double>())))
        return refuse("adapter.scale is " + short_text(scale) + ", not a number");
    out.adapter_scale = scale.get<double>();
    return {};
}

Result<void> read_parts(const Json& manifest, const ModelShape& base, Manifest& out) {
    if (auto adapter = read_adapter(manifest, out); !adapter) return adapter;
    if (const Json& state = member(manifest, "state"); !state.is_null()) {
        auto config = parse_state_config(state, base);
        if (!config) return config.error();
        out.state = *std::move(config);
    }
    if (out.members.empty() && out.adapter_path.empty() && !out.state)
        return refuse("it has neither adapter nor state nor members");
    return {};
}

Result<void> check_number(const Json& wanted, const char* key, int found) {
    const Json& value = member(wanted, key);
    if (value.is_null() || value == found) return {};
    return refuse("base." + std::string(key) + " is " + short_text(value) + ", this base has " + std::to_string(found));
}

/// A state belongs to one base alone; an adapter without a checkpoint is judged by its shapes.
Result<void> check_checkpoint(const Json& wanted, const ModelShape& base, bool allow_unverified, Manifest& out) {
    const Json& value = member(wanted, "checkpoint");
    const bool override = allow_unverified && out.state;
    if (value.is_null()) {
        if (!out.state) return {};
        if (!override) return refuse("base.checkpoint is missing: a state is made for one base alone");
        out.base_match = "unverified";
        return {};
    }
    const Json list = value.is_array() ? value : Json::array({value});
    if (list.empty()) return refuse("base.checkpoint is empty");
    for (const Json& id : list)
        if (!id.is_string()) return refuse("base.checkpoint is " + short_text(value) + ", not an id");
    if (base.checkpoint.empty()) {
        if (!allow_unverified)
            return make_error(Errc::unavailable, "module_config.json: the base's checkpoint is not known yet");
        out.base_match = "unverified";
        return {};
    }
    if (std::find(list.begin(), list.end(), base.checkpoint) != list.end()) {
        out.base_match = "checkpoint";
    } else if (override) {
        out.base_match = "unverified";
    } else {
        return refuse("base.checkpoint is another base's: wanted " + short_text(list.front()) + ", this base is " +
                      in_quotes(base.checkpoint));
    }
    return {};
}

Result<void> check_base(const Json& manifest, const ModelShape& base, bool allow_unverified, Manifest& out) {
    const Json& wanted = member(manifest, "base");
    if (wanted.is_null()) return check_checkpoint(Json::object(), base, allow_unverified, out);
    if (!wanted.is_object()) return refuse("base is no object");
    if (auto keys =
            only_keys(wanted, "base", {"model_type", "hidden_size", "num_hidden_layers", "vocab_size", "checkpoint"});
        !keys)
        return keys.error();
    const Json& type = member(wanted, "model_type");
    if (!type.is_null() && type != base.model_type)
        return refuse("base.model_type is " + short_text(type) + ", this base is " + in_quotes(base.model_type));
    for (const auto& [key, found] : {std::pair{"hidden_size", base.hidden_size},
                                     {"num_hidden_layers", base.layer_count()},
                                     {"vocab_size", base.vocab_size}})
        if (auto same = check_number(wanted, key, found); !same) return same.error();
    return check_checkpoint(wanted, base, allow_unverified, out);
}

Result<void> read_routing(const Json& manifest, Manifest& out) {
    const Json& routing = member(manifest, "routing");
    if (routing.is_null()) return {};
    if (!routing.is_object()) return refuse("routing is no object");
    if (auto keys = only_keys(routing, "routing", {"task_ids", "tags", "users", "keywords", "priority"}); !keys)
        return keys.error();
    RouteRule rule;
    rule.modules.push_back({out.name, 1.0});
    for (const auto& [key, list] : {std::pair{"task_ids", &rule.task_ids},
                                    {"tags", &rule.tags},
                                    {"users", &rule.users},
                                    {"keywords", &rule.keywords}})
        if (auto read = read_texts(routing, key, *list); !read) return read.error();
    if (const Json& priority = member(routing, "priority"); !priority.is_null()) {
        if (!priority.is_number_integer() || priority.get<std::int64_t>() < -100 || priority.get<std::int64_t>() > 100)
            return refuse("routing.priority is " + short_text(priority) + ", not a whole number from -100 to 100");
        rule.priority = priority.get<int>();
    }
    rule.owner = out.owner;
    out.routing = std::move(rule);
    return {};
}

Result<void> read_serving(const Json& manifest, Manifest& out) {
    const Json& serving = member(manifest, "serving");
    if (serving.is_null()) return {};
    if (!serving.is_object()) return refuse("serving is no object");
    if (auto keys = only_keys(serving, "serving", {"cold", "pin", "owner"}); !keys) return keys.error();
    if (const Json& cold = member(serving, "cold"); !cold.is_null()) {
        for (const auto& [word, policy] : {std::pair{"wait", ColdPolicy::wait},
                                           {"fallback", ColdPolicy::fallback},
                                           {"upgrade", ColdPolicy::upgrade},
                                           {"revise", ColdPolicy::revise}})
            if (cold == word) out.cold = policy;
        if (!out.cold) return refuse("serving.cold is " + short_text(cold) + ", not wait, fallback, upgrade or revise");
    }
    if (const Json& pin = member(serving, "pin"); !pin.is_null()) {
        if (!pin.is_boolean()) return refuse("serving.pin is " + short_text(pin) + ", not true or false");
        out.pin = pin.get<bool>();
    }
    return read_text(serving, "owner", out.owner);
}

// `base adapter state order requires members combine`, those that are there.
std::string hashed_part(const Json& manifest) {
    nlohmann::json sorted = nlohmann::json::object();
    for (const char* key : {"base", "adapter", "state", "order", "requires", "members", "combine"})
        if (const auto at = manifest.find(key); at != manifest.end()) sorted[key] = nlohmann::json::parse(at->dump());
    return sorted.dump();
}

}  // namespace

Result<std::string> relative_path(const OrderedJson& value, const std::string& key) {
    if (!value.is_string()) return refuse(key + " is missing");
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty() || text.find('\0') != std::string::npos) return refuse(key + " is missing");
    const std::filesystem::path path(text);
    if (path.is_absolute()) return refuse(key + " " + in_quotes(text) + " is not relative");
    for (const auto& part : path)
        if (part == "..") return refuse(key + " " + in_quotes(text) + " leaves the package");
    auto normal = path.lexically_normal();
    if (!normal.has_filename()) normal = normal.parent_path();
    return normal.empty() ? std::string(".") : normal.generic_string();
}

Result<Manifest> parse_manifest(std::span<const std::byte> text, const ModelShape& base, bool allow_unverified) {
    const auto json = parse_json_object(text, "module_config.json");
    if (!json) return json.error();
    if (auto keys = only_keys(*json, "",
                              {"format", "name", "version", "description", "license", "base", "adapter", "state",
                               "order", "requires", "members", "combine", "routing", "serving"});
        !keys)
        return keys.error();
    const Json& format = member(*json, "format");
    if (format != 1) return refuse("format is " + short_text(format) + ", this engine reads 1");
    Manifest out;
    for (const auto& [key, field] : {std::pair{"name", &out.name},
                                     {"version", &out.version},
                                     {"description", &out.description},
                                     {"license", &out.license}})
        if (auto read = read_text(*json, key, *field); !read) return read.error();
    if (out.name.empty()) return refuse("name is missing");
    for (const auto& read : {read_members, read_requirements, read_order})
        if (auto done = read(*json, out); !done) return done.error();
    if (auto parts = read_parts(*json, base, out); !parts) return parts.error();
    if (auto matched = check_base(*json, base, allow_unverified, out); !matched) return matched.error();
    if (auto serving = read_serving(*json, out); !serving) return serving.error();
    if (auto routing = read_routing(*json, out); !routing) return routing.error();
    out.hashed_json = hashed_part(*json);
    return out;
}

}  // namespace attune
