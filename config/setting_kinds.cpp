#include "config/setting_kinds.hpp"

#include <charconv>
#include <limits>
#include <sstream>
#include <system_error>

namespace attune::setting_kinds {

std::string toml_quoted(std::string_view text) {
    std::ostringstream out;
    const toml::value<std::string> value{std::string(text)};
    out << toml::toml_formatter{value, toml::format_flags::allow_unicode_strings};
    return out.str();
}

std::string number_text(double value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    return {digits, end};
}

std::string size_text(std::uint64_t bytes) {
    static constexpr std::pair<std::uint64_t, const char*> kUnits[] = {
        {kTiB, "TiB"}, {kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}};
    for (const auto& [unit, name] : kUnits) {
        if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + name;
    }
    return std::to_string(bytes);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
    std::uint64_t count = 0;
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (failed != std::errc{}) return std::nullopt;
    std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
    if (unit.starts_with(' ')) unit.remove_prefix(1);
    static constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
        {"", 1},      {"B", 1},     {"KiB", kKiB},   {"MiB", kMiB},      {"GiB", kGiB},         {"TiB", kTiB},
        {"kB", 1000}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000},
    };
    for (const auto& [name, bytes] : kUnits) {
        if (unit != name) continue;
        if (count > std::numeric_limits<std::uint64_t>::max() / bytes) return std::nullopt;
        return count * bytes;
    }
    return std::nullopt;
}

bool is_plain_text(std::string_view text, std::size_t longest) {
    return text.size() <= longest &&
           std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + toml_quoted(word);
    return out;
}

}  // namespace attune::setting_kinds
