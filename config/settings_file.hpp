#pragma once

#include "attune/result.hpp"
#include "attune/settings.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Defaults, then the file (empty: none), then `overrides` ("section.key=value"), then the checks across settings.
/// Errors name file, line, section, key, value and what is allowed; Errc::unsupported when the value is of the
/// contract but not offered by this version.
Result<Settings> read_settings(const std::filesystem::path& file, std::span<const std::string> overrides = {});

/// TOML text over the defaults. `name` is what errors call it; relative paths start from `base`.
Result<Settings> parse_settings(std::string_view toml, const std::string& name, const std::filesystem::path& base);

/// "section.key=value": the value as TOML or, where that is unambiguous, without quotes (cold.policy=wait,
/// modules.pinned=a,b). Relative paths start from the working directory.
Result<void> override_setting(Settings& settings, std::string_view assignment);

/// What one value alone cannot tell, e.g. that the low watermark lies below the high one.
Result<void> check_settings(const Settings& settings);

/// Every setting with its value as a TOML file.
std::string show_settings(const Settings& settings);

/// One known setting, for help texts and for the check of the shipped file.
struct SettingInfo {
    std::string section;
    std::string key;
    std::string value;  ///< default, as TOML
    std::string allowed;
};
std::vector<SettingInfo> known_settings();

}  // namespace attune
