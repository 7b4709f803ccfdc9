#include "net/field_reader.hpp"

#include "net/json_text.hpp"

#include <boost/json/array.hpp>
#include <cmath>

namespace attune {
namespace {

std::string plain(double number) {
    std::string out;
    append_json_number(out, number);
    return out;
}

// Nothing where only the body's own size is the limit.
std::string at_most(std::size_t limit, std::string_view unit) {
    return limit == std::string::npos ? "" : " of at most " + std::to_string(limit) + std::string(unit);
}

}  // namespace

std::string describe(const boost::json::value& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    if (const auto* text = value.if_string(); text && text->size() > 40)
        return "a string of " + std::to_string(text->size()) + " bytes";
    if (const auto* number = value.if_double(); number && !std::isfinite(*number)) return "a number out of range";
    return to_json(value);
}

std::optional<std::int64_t> as_integer(const boost::json::value& value) {
    if (const auto* number = value.if_int64()) return *number;
    return std::nullopt;  // uint64 kind means above the range of int64
}

FieldReader::FieldReader(const boost::json::object& object, std::string scope)
    : object_(object), scope_(std::move(scope)) {}

const boost::json::value* FieldReader::find(std::string_view name) {
    known_.emplace(name);
    const auto* value = object_.if_contains(name);
    return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto number = as_integer(*value);
    if (number && *number >= low && *number <= high) return number;
    fail(name, "`" + path(name) + "` must be an integer from " + std::to_string(low) + " to " + std::to_string(high) +
                   ", got " + describe(*value) + ".");
    return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) {
        const double number = value->to_number<double>();
        if (std::isfinite(number) && number >= low && number <= high) return number;
    }
    fail(name, "`" + path(name) + "` must be a number from " + plain(low) + " to " + plain(high) + ", got " +
                   describe(*value) + ".");
    return std::nullopt;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (const auto* flag = value->if_bool()) return *flag;
    fail(name, "`" + path(name) + "` must be true or false, got " + describe(*value) + ".");
    return std::nullopt;
}

std::optional<std::string> FieldReader::string(std::string_view name, std::size_t max_bytes) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto* text = value->if_string();
    if (text != nullptr && text->size() <= max_bytes) return std::string(text->data(), text->size());
    fail(name,
         "`" + path(name) + "` must be a string" + at_most(max_bytes, " bytes") + ", got " + describe(*value) + ".");
    return std::nullopt;
}

const boost::json::object* FieldReader::object(std::string_view name) {
    const auto* value = find(name);
    if (value == nullptr) return nullptr;
    if (const auto* object = value->if_object()) return object;
    fail(name, "`" + path(name) + "` must be an object, got " + describe(*value) + ".");
    return nullptr;
}

const boost::json::array* FieldReader::array(std::string_view name, std::size_t max_items) {
    const auto* value = find(name);
    if (value == nullptr) return nullptr;
    const auto* array = value->if_array();
    if (array != nullptr && array->size() <= max_items) return array;
    fail(name, "`" + path(name) + "` must be a list" + at_most(max_items, " items") + ", got " +
                   (array == nullptr ? describe(*value) : std::to_string(array->size()) + " items") + ".");
    return nullptr;
}

void FieldReader::fail(std::string_view name, std::string message, Errc code) {
    if (!error_) error_ = make_error(code, std::move(message), path(name));
}

std::string FieldReader::unknown_fields() const {
    constexpr int kNamed = 8;
    constexpr std::size_t kNameBytes = 64;
    std::string names;
    int found = 0;
    for (const auto& field : object_) {
        const std::string_view name(field.key().data(), field.key().size());
        if (known_.contains(name)) continue;
        if (++found > kNamed) continue;
        // As JSON strings, so that a name cannot write lines of its own into the log.
        if (!names.empty()) names += ", ";
        append_json_string(names, name.substr(0, kNameBytes));
    }
    if (found > kNamed) names += " and " + std::to_string(found - kNamed) + " more";
    return names;
}

}  // namespace attune
