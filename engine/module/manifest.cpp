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

// Parts that other modules or later versions of this engine need.
Result<void> refuse_unsupported(const Json& manifest) {
    for (const auto& [key, what] :
         {std::pair{"state", "a state"}, {"members", "members"}, {"requires", "required modules"}})
        if (!is_empty(member(manifest, key)))
            return refuse(std::string("packages with ") + what + " are not supported yet");
    const Json& combine = member(manifest, "combine");
    if (!combine.is_null() && combine != "sequence") return refuse("combine is for packages with members only");
    const Json& order = member(manifest, "order");
    if (!order.is_null() && !order.is_number_integer())
        return refuse("order is " + short_text(order) + ", not a whole number");
    return {};
}

Result<void> read_adapter(const Json& manifest, Manifest& out) {
    const Json& adapter = member(manifest, "adapter");
    if (!adapter.is_object()) return refuse("adapter is missing");
    if (auto keys = only_keys(adapter, "adapter", {"path", "scale"}); !keys) return keys.error();
    std::string text;
    if (auto read = read_text(adapter, "path", text); !read) return read.error();
    if (text.empty() || text.find('\0') != std::string::npos) return refuse("adapter.path is missing");
    const std::filesystem::path path(text);
    if (path.is_absolute()) return refuse("adapter.path " + in_quotes(text) + " is not relative");
    for (const auto& part : path)
        if (part == "..") return refuse("adapter.path " + in_quotes(text) + " leaves the package");
    auto normal = path.lexically_normal();
    if (!normal.has_filename()) normal = normal.parent_path();
    out.adapter_path = normal.empty() ? "." : normal.generic_string();
    const Json& scale = member(adapter, "scale");
    if (scale.is_null()) return {};
    if (!scale.is_number() || !std::isfinite(static_cast<float>(scale.get<double>())))
        return refuse("adapter.scale is " + short_text(scale) + ", not a number");
    out.adapter_scale = scale.get<double>();
    return {};
}

Result<void> check_number(const Json& wanted, const char* key, int found) {
    const Json& value = member(wanted, key);
    if (value.is_null() || value == found) return {};
    return refuse("base." + std::string(key) + " is " + short_text(value) + ", this base has " + std::to_string(found));
}

Result<void> check_checkpoint(const Json& wanted, const ModelShape& base, bool allow_unverified, Manifest& out) {
    const Json& value = member(wanted, "checkpoint");
    if (value.is_null()) return {};
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
    if (std::find(list.begin(), list.end(), base.checkpoint) == list.end())
        return refuse("base.checkpoint is another base's: wanted " + short_text(list.front()) + ", this base is " +
                      in_quotes(base.checkpoint));
    out.base_match = "checkpoint";
    return {};
}

Result<void> check_base(const Json& manifest, const ModelShape& base, bool allow_unverified, Manifest& out) {
    const Json& wanted = member(manifest, "base");
    if (wanted.is_null()) return {};
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
    if (auto supported = refuse_unsupported(*json); !supported) return supported.error();
    if (auto adapter = read_adapter(*json, out); !adapter) return adapter.error();
    if (auto matched = check_base(*json, base, allow_unverified, out); !matched) return matched.error();
    if (auto serving = read_serving(*json, out); !serving) return serving.error();
    if (auto routing = read_routing(*json, out); !routing) return routing.error();
    out.hashed_json = hashed_part(*json);
    return out;
}

}  // namespace attune
