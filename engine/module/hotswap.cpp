#include "engine/module/hotswap.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

namespace attune {
namespace {

using Json = nlohmann::json;

/// CONFIG_KEYS_TO_CHECK of PEFT 0.21, and what the config says without the key.
struct CheckedKey {
    const char* name;
    const char* otherwise;
};
constexpr CheckedKey kLoraKeys[] = {
    {"use_rslora", "False"}, {"lora_dropout", "0.0"}, {"alpha_pattern", "{}"}, {"use_dora", "False"}};

constexpr std::size_t kNamedKeys = 4;  // of many in one message

/// As Python's str() writes a value of JSON; enough for what these keys can hold.
std::string python_text(const Json& value) {
    if (value.is_null()) return "None";
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (value.is_string()) return "'" + value.get<std::string>() + "'";
    if (!value.is_object()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string text = "{";
    for (const auto& [key, one] : value.items())
        text += (text.size() > 1 ? ", '" : "'") + key + "': " + python_text(one);
    return text + "}";
}

/// 0 and 0.0, null and {} mean the same to PEFT's comparison or to its defaults.
bool same_value(std::string_view a, std::string_view b) {
    const auto plain = [](std::string_view text) { return text == "0" ? "0.0" : text == "None" ? "{}" : text; };
    return plain(a) == plain(b);
}

Error refuse(std::string text) { return make_error(Errc::invalid_module, std::move(text), "lora_name"); }

Error unexpected_keys(const std::vector<std::string>& keys) {
    std::string text = "Hot swapping the adapter did not succeed, unexpected keys found: ";
    for (std::size_t i = 0; i < keys.size() && i < kNamedKeys; ++i)
        text += (i > 0 ? ", " : "") + keys[i].substr(0, 200);
    if (keys.size() > kNamedKeys) text += " and " + std::to_string(keys.size() - kNamedKeys) + " more";
    return refuse(text + ".");
}

}  // namespace

std::uint64_t SwapFacts::bytes() const {
    std::uint64_t sum = keys.capacity() * sizeof(std::string);
    for (const std::string& key : keys) sum += key.capacity();
    for (const auto& [key, value] : config) sum += sizeof(config.front()) + key.capacity() + value.capacity();
    return sum;
}

SwapFacts swap_facts(std::span<const std::byte> config_text, std::vector<std::string> keys) {
    const auto* begin = reinterpret_cast<const char*>(config_text.data());
    const Json config = Json::parse(begin, begin + config_text.size(), nullptr, /*allow_exceptions=*/false);
    SwapFacts facts;
    facts.keys = std::move(keys);
    std::sort(facts.keys.begin(), facts.keys.end());
    if (!config.is_object()) return facts;
    facts.peft_type = config.value("peft_type", Json()).is_string() ? config["peft_type"].get<std::string>() : "";
    if (facts.peft_type != "LORA") return facts;
    for (const CheckedKey& key : kLoraKeys)
        facts.config.emplace_back(key.name, config.contains(key.name) ? python_text(config[key.name]) : key.otherwise);
    return facts;
}

Result<void> check_hotswap(const SwapFacts& place, const SwapFacts& next) {
    if (place.peft_type != next.peft_type)
        return refuse("Incompatible PEFT types found: " + place.peft_type + " and " + next.peft_type);
    if (place.peft_type != "LORA")
        return refuse("Hotswapping only supports LORA but " + place.peft_type + " was passed");
    for (std::size_t i = 0; i < place.config.size() && i < next.config.size(); ++i) {
        const auto& [key, now] = place.config[i];
        const std::string& then = next.config[i].second;
        if (!same_value(now, then)) return refuse("Configs are incompatible: for " + key + ", " + now + " != " + then);
    }
    std::vector<std::string> unexpected;
    std::ranges::set_difference(next.keys, place.keys, std::back_inserter(unexpected));
    if (!unexpected.empty()) return unexpected_keys(unexpected);
    return {};
}

Error unknown_hotswap(const SwapFacts& next) { return unexpected_keys(next.keys); }

Error merged_hotswap(std::string_view name) {
    return make_error(Errc::conflict, "Cannot hot-swap adapter '" + std::string(name) + "': it is currently merged",
                      "lora_name");
}

}  // namespace attune
