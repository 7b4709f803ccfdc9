#pragma once

#include "attune/settings.hpp"

#include <toml_parser.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace attune {

/// The one list of all settings: reading, printing and the check of the shipped file walk over it.
struct SettingField {
    enum class Outcome {
        ok,
        wrong,  ///< type or value is not what `allowed` says
    };

    std::string section;
    std::string key;
    std::string allowed;   ///< completes "allowed: "
    bool is_text = false;  ///< an override's value is taken as it stands, without quotes
    bool is_list = false;  ///< an override's value may be words between commas
    /// `base`: folder that relative paths start from.
    std::function<Outcome(const toml::node& value, const std::filesystem::path& base, Settings& into)> read{};
    /// The value as TOML.
    std::function<std::string(const Settings& from)> show{};
};

const std::vector<SettingField>& setting_fields();

}  // namespace attune
