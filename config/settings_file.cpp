#include "config/settings_file.hpp"

#include "config/settings_fields.hpp"
#include "config/toml_text.hpp"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

namespace attune {
namespace {

constexpr std::uint64_t kFileBytes = 1ull << 20;

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const SettingField& field : setting_fields()) {
        if (std::find(names.begin(), names.end(), field.section) == names.end()) names.push_back(field.section);
    }
    return names;
}

std::vector<std::string> key_names(std::string_view section) {
    std::vector<std::string> names;
    for (const SettingField& field : setting_fields()) {
        if (field.section == section) names.push_back(field.key);
    }
    return names;
}

const SettingField* find_field(std::string_view section, std::string_view key) {
    const auto& fields = setting_fields();
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const auto& field) { return field.section == section && field.key == key; });
    return found == fields.end() ? nullptr : &*found;
}

std::string listed(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
    return out;
}

Error unknown_section(const std::string& place, std::string_view section) {
    const auto known = section_names();
    const std::string close = nearest(section, known);
    return make_error(Errc::invalid_argument, place + "unknown section [" + std::string(section) + "]" +
                                                  (close.empty() ? "" : "; did you mean [" + close + "]?") +
                                                  " Known: " + listed(known));
}

Error unknown_key(const std::string& place, std::string_view section, std::string_view key, const std::string& value) {
    const auto known = key_names(section);
    std::string hint;
    if (const std::string close = nearest(key, known); !close.empty()) {
        hint = "; did you mean " + close + "?";
    } else {
        for (const SettingField& field : setting_fields()) {
            if (field.key == key) hint = "; it belongs to [" + field.section + "].";
        }
    }
    return make_error(Errc::invalid_argument, place + "unknown key [" + std::string(section) + "] " + std::string(key) +
                                                  " = " + value + hint + " Known: " + listed(known));
}

Result<void> read_field(const SettingField& field, const toml::node& value, const std::string& place,
                        const std::filesystem::path& base, Settings& into) {
    const auto outcome = field.read(value, base, into);
    if (outcome == SettingField::Outcome::ok) return {};
    const std::string what = place + "[" + field.section + "] " + field.key + " = " + describe(value);
    return make_error(Errc::invalid_argument, what + " is not allowed; allowed: " + field.allowed, field.key);
}

std::filesystem::path working_folder() {
    std::error_code failed;
    const auto folder = std::filesystem::current_path(failed);
    return failed ? std::filesystem::path(".") : folder;
}

}  // namespace

Result<Settings> parse_settings(std::string_view toml_text, const std::string& name,
                                const std::filesystem::path& base) {
    auto table = parse_toml(toml_text, name);
    if (!table) return table.error();
    Settings settings;
    const auto known = section_names();
    for (const auto& [section_key, section_node] : *table) {
        const std::string_view section = section_key.str();
        if (std::find(known.begin(), known.end(), section) == known.end()) {
            return unknown_section(place_of(section_node, name), section);
        }
        const toml::table* keys = section_node.as_table();
        if (keys == nullptr) {
            return make_error(Errc::invalid_argument, place_of(section_node, name) + std::string(section) + " = " +
                                                          describe(section_node) + ": [" + std::string(section) +
                                                          "] is a section of settings");
        }
        for (const auto& [key, value] : *keys) {
            const SettingField* field = find_field(section, key.str());
            if (field == nullptr) return unknown_key(place_of(value, name), section, key.str(), describe(value));
            auto read = read_field(*field, value, place_of(value, name), base, settings);
            if (!read) return read.error();
        }
    }
    return settings;
}

Result<void> override_setting(Settings& settings, std::string_view assignment) {
    const auto equals = assignment.find('=');
    const auto dot = assignment.find('.');
    if (equals == std::string_view::npos || dot == std::string_view::npos || dot > equals) {
        return make_error(Errc::invalid_argument,
                          "\"" + std::string(assignment) + "\" is not of the form section.key=value");
    }
    const std::string_view section = assignment.substr(0, dot);
    const std::string_view key = assignment.substr(dot + 1, equals - dot - 1);
    const std::string given(assignment.substr(equals + 1));
    const auto known = section_names();
    if (std::find(known.begin(), known.end(), section) == known.end()) return unknown_section("", section);
    const SettingField* field = find_field(section, key);
    if (field == nullptr) return unknown_key("", section, key, given);

    const auto base = working_folder();
    const toml::value<std::string> plain{given};
    const bool is_quoted = given.size() >= 2 && (given.front() == '"' || given.front() == '\'');
    if (field->is_text && !is_quoted) return read_field(*field, plain, "", base, settings);

    auto parsed = parse_toml("value = " + given, "");
    // A second key would have come from a line break in the value.
    if (parsed && parsed->size() == 1) {
        const toml::node& value = *parsed->get("value");
        if (!(field->is_list && !value.is_array())) return read_field(*field, value, "", base, settings);
    }
    if (!field->is_list) return read_field(*field, plain, "", base, settings);
    toml::array words;
    for (std::size_t begin = 0; begin < given.size();) {
        const std::size_t comma = std::min(given.find(',', begin), given.size());
        words.push_back(given.substr(begin, comma - begin));
        begin = comma + 1;
    }
    return read_field(*field, words, "", base, settings);
}

Result<void> check_settings(const Settings& settings) {
    const auto& trigger = settings.trigger;
    if (trigger.low_watermark > trigger.high_watermark) {
        return make_error(Errc::invalid_argument,
                          "[trigger] low_watermark lies above high_watermark; unloading would never end");
    }
    return {};
}

Result<Settings> read_settings(const std::filesystem::path& file, std::span<const std::string> overrides) {
    Settings settings;
    if (!file.empty()) {
        auto text = read_text_file(file, kFileBytes);
        if (!text) return text.error();
        const auto folder = (working_folder() / file).lexically_normal().parent_path();
        auto parsed = parse_settings(*text, file.filename().string(), folder);
        if (!parsed) return parsed.error();
        settings = std::move(*parsed);
    }
    for (const std::string& assignment : overrides) {
        auto changed = override_setting(settings, assignment);
        if (!changed) return changed.error();
    }
    auto checked = check_settings(settings);
    if (!checked) return checked.error();
    return settings;
}

std::string show_settings(const Settings& settings) {
    std::string out;
    std::string section;
    for (const SettingField& field : setting_fields()) {
        if (field.section != section) {
            section = field.section;
            out += (out.empty() ? "[" : "\n[") + section + "]\n";
        }
        out += field.key + " = " + field.show(settings) + "\n";
    }
    return out;
}

std::vector<SettingInfo> known_settings() {
    const Settings defaults;
    std::vector<SettingInfo> known;
    for (const SettingField& field : setting_fields()) {
        known.push_back({field.section, field.key, field.show(defaults), field.allowed});
    }
    return known;
}

}  // namespace attune
