#pragma once

#include <string_view>

namespace attune {

enum class ConfigKey : unsigned char {
    used,      ///< read by parse_model_config or parse_gguf_config
    harmless,  ///< never changes logits, whatever its value
    off,       ///< changes nothing as long as it is null, false, 0 or empty
    unity,     ///< changes nothing as long as it is null or 1
    unknown,
};

/// What a top-level key of config.json means to us. Unknown keys are refused unless null, so that no model is served
/// with a part of its mathematics left out.
ConfigKey classify_config_key(std::string_view key);

/// The same for a GGUF file's keys below "<architecture>.", given without that prefix.
ConfigKey classify_gguf_key(std::string_view key);

/// Whether a key with this meaning leaves the mathematics alone, given what its value is.
constexpr bool changes_nothing(ConfigKey key, bool is_off, bool is_one) {
    return key == ConfigKey::used || key == ConfigKey::harmless || (key == ConfigKey::off && is_off) ||
           (key == ConfigKey::unity && is_one);
}

}  // namespace attune
