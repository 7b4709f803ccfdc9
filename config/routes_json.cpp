// The JSON form of a routes file: turned into the tables that the TOML reader checks, so both say the same.

#include "config/routes_file.hpp"
#include "config/routes_table.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

constexpr int kDepth = 8;  ///< rule list, rule, list of modules, module, and some
constexpr const char* kName = "routes";

Error wrong(const std::string& what) { return make_error(Errc::invalid_argument, std::string(kName) + ": " + what); }

Result<toml::table> table_of(const json& object, const std::string& where, int depth);
Result<toml::array> array_of(const json& list, const std::string& where, int depth);

/// Calls keep(value) with what the value is in TOML.
template <class Keep>
Result<void> convert(const json& value, const std::string& where, int depth, Keep&& keep) {
    if (depth > kDepth) return wrong(where + " is nested too deeply");
    switch (value.type()) {
        case json::value_t::object: {
            auto table = table_of(value, where, depth + 1);
            if (!table) return table.error();
            keep(std::move(*table));
            return {};
        }
        case json::value_t::array: {
            auto list = array_of(value, where, depth + 1);
            if (!list) return list.error();
            keep(std::move(*list));
            return {};
        }
        case json::value_t::string:
            keep(value.get<std::string>());
            return {};
        case json::value_t::boolean:
            keep(value.get<bool>());
            return {};
        case json::value_t::number_unsigned:
            if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                return wrong(where + " is too large a number");
            [[fallthrough]];
        case json::value_t::number_integer:
            keep(value.get<std::int64_t>());
            return {};
        case json::value_t::number_float:
            keep(value.get<double>());
            return {};
        default:
            return wrong(where + " is null; leave the key out");
    }
}

Result<toml::table> table_of(const json& object, const std::string& where, int depth) {
    toml::table table;
    for (const auto& [key, value] : object.items()) {
        const std::string inner = where.empty() ? key : where + "." + key;
        auto kept = convert(value, inner, depth, [&, &name = key](auto&& toml) {
            table.insert_or_assign(name, std::forward<decltype(toml)>(toml));
        });
        if (!kept) return kept.error();
    }
    return table;
}

Result<toml::array> array_of(const json& list, const std::string& where, int depth) {
    toml::array array;
    for (std::size_t i = 0; i < list.size(); ++i) {
        auto kept = convert(list[i], where + "[" + std::to_string(i) + "]", depth,
                            [&](auto&& toml) { array.push_back(std::forward<decltype(toml)>(toml)); });
        if (!kept) return kept.error();
    }
    return array;
}

}  // namespace

Result<RouteFile> parse_routes_json(std::string_view text, const std::filesystem::path& watched) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return wrong("not a JSON object");
    auto table = table_of(object, "", 0);
    if (!table) return table.error();
    auto file = routes_of_table(*table, kName);
    if (!file || !file->classifier) return file;
    std::filesystem::path& name = file->classifier->file;
    // What comes over the network names no other places of this machine.
    if (name != name.filename() || name == ".." || name == ".")
        return wrong("classifier, file: allowed: the name of a file beside the routes file, without a folder");
    if (watched.empty()) return wrong("classifier: a server without routing.file has no folder for its file");
    name = watched.parent_path() / name;
    return file;
}

}  // namespace attune
