#pragma once

#include "config/settings_fields.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Makers of SettingField, one per kind of value; only for settings_fields.cpp.
namespace attune::setting_kinds {

using Outcome = SettingField::Outcome;

inline constexpr std::uint64_t kKiB = 1ull << 10;
inline constexpr std::uint64_t kMiB = 1ull << 20;
inline constexpr std::uint64_t kGiB = 1ull << 30;
inline constexpr std::uint64_t kTiB = 1ull << 40;

/// Where a value lives: Settings -> section -> member.
template <class Section, class T>
struct At {
    using Value = T;
    Section Settings::*section;
    T Section::*member;
    T& operator()(Settings& settings) const { return settings.*section.*member; }
    const T& operator()(const Settings& settings) const { return settings.*section.*member; }
};
template <class Section, class T>
At(Section Settings::*, T Section::*) -> At<Section, T>;

std::string toml_quoted(std::string_view text);
std::string number_text(double value);
/// 8192 -> "8KiB" where that is exact.
std::string size_text(std::uint64_t bytes);
std::optional<std::uint64_t> parse_size(std::string_view text);
/// Short enough and free of control characters.
bool is_plain_text(std::string_view text, std::size_t longest);
/// "a", "b"
std::string joined(const std::vector<std::string>& words);

template <class Where>
SettingField integer(const char* section, const char* key, Where at, std::int64_t least, std::int64_t most,
                     std::string note = {}) {
    SettingField field{section, key, "an integer from " + std::to_string(least) + " to " + std::to_string(most) + note};
    field.read = [at, least, most](const toml::node& value, const std::filesystem::path&, Settings& into) {
        const auto number = value.as_integer();
        if (number == nullptr || number->get() < least || number->get() > most) return Outcome::wrong;
        at(into) = static_cast<typename Where::Value>(number->get());
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return std::to_string(at(from)); };
    return field;
}

template <class Where>
SettingField size(const char* section, const char* key, Where at, std::uint64_t least, std::uint64_t most,
                  bool zero_too = false) {
    SettingField field{section, key,
                       "bytes as an integer or a text like \"256MiB\", from " + size_text(least) + " to " +
                           size_text(most) + (zero_too ? ", or 0" : "")};
    field.read = [at, least, most, zero_too](const toml::node& value, const std::filesystem::path&, Settings& into) {
        std::optional<std::uint64_t> bytes;
        if (const auto number = value.as_integer(); number != nullptr && number->get() >= 0) {
            bytes = static_cast<std::uint64_t>(number->get());
        } else if (const auto text = value.as_string()) {
            bytes = parse_size(text->get());
        }
        if (!bytes) return Outcome::wrong;
        if ((*bytes < least || *bytes > most) && !(zero_too && *bytes == 0)) return Outcome::wrong;
        at(into) = static_cast<typename Where::Value>(*bytes);
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) {
        const std::string text = size_text(at(from));
        return std::isdigit(static_cast<unsigned char>(text.back())) ? text : '"' + text + '"';
    };
    return field;
}

template <class Where>
SettingField number(const char* section, const char* key, Where at, double least, double most, std::string note = {}) {
    SettingField field{section, key, "a number from " + number_text(least) + " to " + number_text(most) + note};
    field.read = [at, least, most](const toml::node& value, const std::filesystem::path&, Settings& into) {
        if (!value.is_number()) return Outcome::wrong;
        const double given = *value.value<double>();
        if (!std::isfinite(given) || given < least || given > most) return Outcome::wrong;
        at(into) = given;
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return number_text(at(from)); };
    return field;
}

template <class Where>
SettingField boolean(const char* section, const char* key, Where at) {
    SettingField field{section, key, "true or false"};
    field.read = [at](const toml::node& value, const std::filesystem::path&, Settings& into) {
        if (!value.is_boolean()) return Outcome::wrong;
        at(into) = value.as_boolean()->get();
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return std::string(at(from) ? "true" : "false"); };
    return field;
}

/// A string that `is_valid` accepts.
template <class Where>
SettingField text(const char* section, const char* key, Where at, std::string allowed,
                  bool (*is_valid)(std::string_view)) {
    SettingField field{section, key, std::move(allowed), /*is_text=*/true};
    field.read = [at, is_valid](const toml::node& value, const std::filesystem::path&, Settings& into) {
        const auto given = value.as_string();
        if (given == nullptr || !is_plain_text(given->get(), 1024) || !is_valid(given->get())) return Outcome::wrong;
        at(into) = given->get();
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return toml_quoted(at(from)); };
    return field;
}

/// One of `words`.
template <class Where>
SettingField choice(const char* section, const char* key, Where at, std::vector<std::string> words) {
    SettingField field{section, key, joined(words), /*is_text=*/true};
    field.read = [at, words](const toml::node& value, const std::filesystem::path&, Settings& into) {
        const auto given = value.as_string();
        if (given == nullptr || std::find(words.begin(), words.end(), given->get()) == words.end())
            return Outcome::wrong;
        at(into) = given->get();
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return toml_quoted(at(from)); };
    return field;
}

template <class Enum>
struct Word {
    const char* text;
    Enum value;
};

template <class Where>
SettingField enumerated(const char* section, const char* key, Where at,
                        std::vector<Word<typename Where::Value>> words) {
    std::vector<std::string> texts;
    for (const auto& word : words) texts.emplace_back(word.text);
    SettingField field{section, key, joined(texts), /*is_text=*/true};
    field.read = [at, words](const toml::node& value, const std::filesystem::path&, Settings& into) {
        const auto given = value.as_string();
        for (const auto& word : words) {
            if (given == nullptr || given->get() != word.text) continue;
            at(into) = word.value;
            return Outcome::ok;
        }
        return Outcome::wrong;
    };
    field.show = [at, words](const Settings& from) {
        const auto found = std::find_if(words.begin(), words.end(), [&](auto& w) { return w.value == at(from); });
        return toml_quoted(found == words.end() ? "" : found->text);
    };
    return field;
}

/// A path, made absolute: the process may be started from anywhere. Empty stays empty.
template <class Where>
SettingField path(const char* section, const char* key, Where at) {
    SettingField field{section, key, "a path, relative to the settings file", /*is_text=*/true};
    field.read = [at](const toml::node& value, const std::filesystem::path& base, Settings& into) {
        const auto given = value.as_string();
        if (given == nullptr || !is_plain_text(given->get(), 4096)) return Outcome::wrong;
        at(into) = given->get().empty() ? std::string() : (base / given->get()).lexically_normal().string();
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) { return toml_quoted(std::filesystem::path(at(from)).string()); };
    return field;
}

template <class Where>
SettingField list(const char* section, const char* key, Where at, std::string allowed,
                  bool (*is_valid)(std::string_view), bool paths = false) {
    SettingField field{section, key, std::move(allowed), /*is_text=*/false, /*is_list=*/true};
    field.read = [at, is_valid, paths](const toml::node& value, const std::filesystem::path& base, Settings& into) {
        const auto items = value.as_array();
        if (items == nullptr || items->size() > 10000) return Outcome::wrong;
        typename Where::Value read;
        for (const toml::node& item : *items) {
            const auto given = item.as_string();
            if (given == nullptr || !is_plain_text(given->get(), 4096) || !is_valid(given->get())) {
                return Outcome::wrong;
            }
            if (paths) {
                read.emplace_back((base / given->get()).lexically_normal().string());
            } else {
                read.emplace_back(given->get());
            }
        }
        at(into) = std::move(read);
        return Outcome::ok;
    };
    field.show = [at](const Settings& from) {
        std::vector<std::string> words;
        for (const auto& item : at(from)) words.push_back(std::filesystem::path(item).string());
        return "[" + joined(words) + "]";
    };
    return field;
}

}  // namespace attune::setting_kinds
